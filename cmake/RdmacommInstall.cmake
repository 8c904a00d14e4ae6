# Files that `cmake --install` puts under a prefix: headers, librdmacomm (one kind or both), and the package files for
# find_package(rdmacomm) and for pkg-config. No file contains the prefix, so the installed tree can be moved.
include(CMakePackageConfigHelpers)

set(package_dir ${CMAKE_INSTALL_LIBDIR}/cmake/rdmacomm)

foreach(entry IN LISTS RDMACOMM_KINDS)
  string(REPLACE ":" ";" entry ${entry})
  list(GET entry 0 kind)
  list(GET entry 1 target)
  string(TOLOWER ${kind} kind)
  install(TARGETS ${target} EXPORT rdmacomm_${kind} COMPONENT rdmacomm
          LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT rdmacomm
          ARCHIVE DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT rdmacomm)
  install(EXPORT rdmacomm_${kind} NAMESPACE rdmacomm:: FILE rdmacomm-${kind}-targets.cmake
          DESTINATION ${package_dir} COMPONENT rdmacomm)
endforeach()

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/rdmacomm DESTINATION ${CMAKE_INSTALL_INCLUDEDIR}
        COMPONENT rdmacomm FILES_MATCHING PATTERN "*.h")

configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/rdmacommConfig.cmake.in
                              ${PROJECT_BINARY_DIR}/rdmacommConfig.cmake INSTALL_DESTINATION ${package_dir}
                              NO_SET_AND_CHECK_MACRO)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/rdmacommConfigVersion.cmake
                                 VERSION ${PROJECT_VERSION} COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/rdmacommConfig.cmake ${PROJECT_BINARY_DIR}/rdmacommConfigVersion.cmake
        DESTINATION ${package_dir} COMPONENT rdmacomm)

# pkg-config: ${pcfiledir} is the folder of the .pc file, so the prefix can be derived from it.
if(IS_ABSOLUTE "${CMAKE_INSTALL_LIBDIR}" OR IS_ABSOLUTE "${CMAKE_INSTALL_INCLUDEDIR}")
  set(pc_prefix ${CMAKE_INSTALL_PREFIX})
  set(pc_libdir ${CMAKE_INSTALL_FULL_LIBDIR})
  set(pc_includedir ${CMAKE_INSTALL_FULL_INCLUDEDIR})
else()
  file(RELATIVE_PATH up "/prefix/${CMAKE_INSTALL_LIBDIR}/pkgconfig" "/prefix")
  string(REGEX REPLACE "/$" "" up "${up}")
  set(pc_prefix "\${pcfiledir}/${up}")
  set(pc_libdir "\${prefix}/${CMAKE_INSTALL_LIBDIR}")
  set(pc_includedir "\${prefix}/${CMAKE_INSTALL_INCLUDEDIR}")
endif()
# With a static library, the program that links it must also link the library's dependencies.
set(pc_requires "libibverbs")
set(pc_requires_private "librdmacm libglog")
set(pc_libs_extra "")
if(NOT "${RDMACOMM_KINDS}" MATCHES "SHARED:")
  set(pc_requires "libibverbs libglog librdmacm")
  set(pc_libs_extra " -pthread")
endif()
configure_file(${PROJECT_SOURCE_DIR}/cmake/rdmacomm.pc.in ${PROJECT_BINARY_DIR}/rdmacomm.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/rdmacomm.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig COMPONENT rdmacomm)
