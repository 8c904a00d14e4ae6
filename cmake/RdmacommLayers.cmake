# One static library for each layer, linking the layers below it and nothing else, and librdmacomm made of all.
include(GNUInstallDirs)
find_package(Threads REQUIRED)
find_package(PkgConfig REQUIRED)
pkg_check_modules(IBVERBS REQUIRED IMPORTED_TARGET libibverbs)
pkg_check_modules(RDMACM REQUIRED IMPORTED_TARGET librdmacm)
pkg_check_modules(GLOG REQUIRED IMPORTED_TARGET libglog)

# Flags of every target of this project, not passed on to users.
add_library(rdmacomm_flags INTERFACE)
target_compile_features(rdmacomm_flags INTERFACE cxx_std_20)
target_compile_options(rdmacomm_flags INTERFACE -Wall -Wextra -Wshadow -Wconversion -Wno-sign-conversion
                       -Wnon-virtual-dtor -Woverloaded-virtual $<$<BOOL:${RDMACOMM_WERROR}>:-Werror>)

set_property(GLOBAL PROPERTY RDMACOMM_LAYERS "")

# rdmacomm_layer(NAME [DEPENDS layers...])
function(rdmacomm_layer name)
  cmake_parse_arguments(PARSE_ARGV 1 layer "" "" "DEPENDS")
  file(GLOB sources CONFIGURE_DEPENDS ${PROJECT_SOURCE_DIR}/src/${name}/*.cc)
  set(target rdmacomm_${name})
  if(NOT sources)
    add_library(${target} INTERFACE)
    return()
  endif()
  add_library(${target} STATIC ${sources})
  set_target_properties(${target} PROPERTIES POSITION_INDEPENDENT_CODE ON LINKER_LANGUAGE CXX)
  target_include_directories(${target} PUBLIC ${PROJECT_SOURCE_DIR}/include PRIVATE ${PROJECT_SOURCE_DIR}/src)
  target_link_libraries(${target} PRIVATE rdmacomm_flags PUBLIC PkgConfig::GLOG PkgConfig::IBVERBS Threads::Threads)
  foreach(below IN LISTS layer_DEPENDS)
    target_link_libraries(${target} PUBLIC rdmacomm_${below})
  endforeach()
  target_compile_features(${target} PUBLIC cxx_std_20)
  set_property(GLOBAL APPEND PROPERTY RDMACOMM_LAYERS ${target})
endfunction()

# librdmacomm: all layers in one library, shared or static as BUILD_SHARED_LIBS says.
function(rdmacomm_library)
  get_property(layers GLOBAL PROPERTY RDMACOMM_LAYERS)
  set(objects)
  foreach(layer IN LISTS layers)
    list(APPEND objects $<TARGET_OBJECTS:${layer}>)
  endforeach()
  add_library(rdmacomm ${objects})
  add_library(rdmacomm::rdmacomm ALIAS rdmacomm)
  set_target_properties(rdmacomm PROPERTIES VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
                        LINKER_LANGUAGE CXX)
  target_compile_features(rdmacomm PUBLIC cxx_std_20)
  target_include_directories(rdmacomm PUBLIC $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
                             $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
  target_link_libraries(rdmacomm PUBLIC PkgConfig::IBVERBS PkgConfig::RDMACM PkgConfig::GLOG Threads::Threads)
endfunction()
