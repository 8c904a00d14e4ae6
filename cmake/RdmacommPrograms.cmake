# Dependencies of the programs of tools/ and example/ besides the library, and how they are built. They are put into
# bin/ of the build tree and installed as component "programs".
pkg_check_modules(GFLAGS REQUIRED IMPORTED_TARGET gflags)
pkg_check_modules(DW REQUIRED IMPORTED_TARGET libdw)
pkg_check_modules(XXHASH REQUIRED IMPORTED_TARGET libxxhash)
find_package(nlohmann_json 3.9 REQUIRED)

# rdmacomm_program(NAME sources...)
function(rdmacomm_program name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE rdmacomm_program_support nlohmann_json::nlohmann_json)
  set_target_properties(${name} PROPERTIES RUNTIME_OUTPUT_DIRECTORY ${PROJECT_BINARY_DIR}/bin)
  if(RDMACOMM_INSTALL)
    install(TARGETS ${name} RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT programs)
  endif()
endfunction()
