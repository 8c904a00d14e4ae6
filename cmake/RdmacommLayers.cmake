# One static library for each layer, which links only the layers below it; and librdmacomm, made of all layers.
include(GNUInstallDirs)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
# GLOBAL: a project that includes this one by add_subdirectory links these through rdmacomm::rdmacomm.
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET GLOBAL libibverbs)
pkg_check_modules(RDMACM REQUIRED IMPORTED_TARGET GLOBAL librdmacm)
pkg_check_modules(GLOG REQUIRED IMPORTED_TARGET GLOBAL libglog)

# Flags of every target of this project, not passed on to users.
add_library(rdmacomm_flags INTERFACE)
target_compile_features(rdmacomm_flags INTERFACE cxx_std_20)
# Log lines and asserts name files relative to the source tree, not the folder in which it was built.
target_compile_options(rdmacomm_flags INTERFACE -fmacro-prefix-map=${PROJECT_SOURCE_DIR}/=)
# In unity builds, which join source files, a local variable of one file may shadow a constant of another; so no warning
# there.
if(NOT CMAKE_UNITY_BUILD)
  set(shadow -Wshadow)
elseif(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
  set(shadow -Wshadow=local)
endif()
target_compile_options(rdmacomm_flags INTERFACE -Wall -Wextra ${shadow} -Wconversion -Wno-sign-conversion
                       -Wnon-virtual-dtor -Woverloaded-virtual $<$<BOOL:${RDMACOMM_WERROR}>:-Werror>)
# GCC 12 reports, with optimization, overflows in std::string's operator+ and in std::vector<std::byte> that do not
# exist (GCC bug 105651 among others).
if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU" AND CMAKE_CXX_COMPILER_VERSION VERSION_LESS 13)
  target_compile_options(rdmacomm_flags INTERFACE "$<$<NOT:$<CONFIG:Debug>>:-Wno-restrict;-Wno-stringop-overflow>")
endif()

set_property(GLOBAL PROPERTY RDMACOMM_LAYERS "")

# rdmacomm_layer(NAME [DEPENDS layers...])
function(rdmacomm_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPENDS")
  set(layer_dir ${PROJECT_SOURCE_DIR}/src/${name})
  file(GLOB sources CONFIGURE_DEPENDS ${layer_dir}/*.cc ${layer_dir}/*/*.cc)
  list(FILTER sources EXCLUDE REGEX "/softdev/(preload|check)/")  # libraries of their own
  set(target rdmacomm_${name})
  add_library(${target} STATIC ${sources})
  # RDMACOMM_API (rdmacomm/version.h) marks the functions that are not hidden.
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE CXX CXX_EXTENSIONS OFF
                        CXX_VISIBILITY_PRESET hidden VISIBILITY_INLINES_HIDDEN ON)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE rdmacomm_flags PkgConfig::GLOG PUBLIC PkgConfig::IBVERBS Threads::Threads)
  foreach(below IN LISTS layer_DEPENDS)
    target_link_libraries(${target} PUBLIC rdmacomm_${below})
  endforeach()
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY RDMACOMM_LAYERS ${target})
endfunction()
# The only user of glog. soft0 does not need it, so it must not be joined with files that soft0 needs.
set_source_files_properties(${PROJECT_SOURCE_DIR}/src/base/log.cc PROPERTIES SKIP_UNITY_BUILD_INCLUSION ON)

# rdmacomm_add_library(TARGET SHARED|STATIC): all layers in one library. It uses the layers' objects, so a second kind
# costs a link and no compilation.
function(rdmacomm_add_library target kind)
  get_property(layers GLOBAL PROPERTY RDMACOMM_LAYERS)
  set(objects)
  foreach(layer IN LISTS layers)
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endforeach()
  add_library(${target} ${kind} ${objects})
  if(kind STREQUAL "SHARED")
    set(exports ${PROJECT_SOURCE_DIR}/src/exports.map)
    target_link_options(${target} PRIVATE LINKER:--version-script=${exports})
    set_property(TARGET ${target} APPEND PROPERTY LINK_DEPENDS ${exports})
  endif()
  # While the major version is 0, a new minor version may change the ABI. So the minor version is part of the SONAME.
  set_target_properties(${target} PROPERTIES OUTPUT_NAME rdmacomm EXPORT_NAME rdmacomm LINKER_LANGUAGE CXX
                        VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}.${PROJECT_VERSION_MINOR})
  target_compile_features(${target} PUBLIC cxx_std_20)
  target_include_directories(${target} PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  # Log lines are written to glog by default; no public header includes it.
  target_link_libraries(${target} PUBLIC PkgConfig::IBVERBS PkgConfig::RDMACM Threads::Threads PRIVATE PkgConfig::GLOG)
endfunction()

# Target rdmacomm, shared or static according to BUILD_SHARED_LIBS; with RDMACOMM_BUILD_BOTH the other kind too. Sets
# RDMACOMM_KINDS in the caller: a list of <kind>:<target> for the install rules.
function(rdmacomm_library)
  if(BUILD_SHARED_LIBS)
    set(kind SHARED)
    set(other STATIC)
  else()
    set(kind STATIC)
    set(other SHARED)
  endif()
  rdmacomm_add_library(rdmacomm ${kind})
  add_library(rdmacomm::rdmacomm ALIAS rdmacomm)
  set(kinds ${kind}:rdmacomm)
  if(RDMACOMM_BUILD_BOTH)
    string(TOLOWER rdmacomm_${other} target)
    rdmacomm_add_library(${target} ${other})
    list(APPEND kinds ${other}:${target})
  endif()
  set(RDMACOMM_KINDS ${kinds} PARENT_SCOPE)
endfunction()
