# The package softrdma: softdev-run with its libraries and its man page, without the library above them. It needs the C
# library, its libgcc and libibverbs only, and works in any folder: nothing in it contains the prefix.
#
#   cmake --build build/release --target softrdma          builds it
#   cmake --install build/release --component softrdma     installs it
#   cpack --config build/release/CPackConfig.cmake         makes softrdma_VERSION_ARCHITECTURE.deb and .tar.gz
set(softrdma_libraries rdmacomm_softdev_preload)
if(TARGET rdmacomm_own_memory)
  list(APPEND softrdma_libraries rdmacomm_own_memory)
endif()
if(TARGET rdmacomm_check)
  list(APPEND softrdma_libraries rdmacomm_check)
endif()
add_custom_target(softrdma DEPENDS ${softrdma_libraries})

execute_process(COMMAND dpkg --print-architecture OUTPUT_VARIABLE architecture OUTPUT_STRIP_TRAILING_WHITESPACE
                ERROR_QUIET)
if(NOT architecture)
  set(architecture ${CMAKE_SYSTEM_PROCESSOR})
endif()

set(CPACK_PACKAGE_NAME softrdma)
set(CPACK_PACKAGE_VENDOR rdmacomm)
set(CPACK_PACKAGE_CONTACT "rdmacomm <https://github.com/rdmacomm/rdmacomm>")
set(CPACK_PACKAGE_VERSION ${PROJECT_VERSION})
set(CPACK_PACKAGE_DESCRIPTION_SUMMARY "RDMA devices in software, for any program")
set(CPACK_PACKAGE_DESCRIPTION "softdev-run starts a program that uses libibverbs or librdmacm with RDMA devices in its
device list that are software. They need no hardware, no kernel module and no privileges. They connect processes of one
host, and processes of other hosts by TCP.")
set(CPACK_GENERATOR DEB TGZ)
set(CPACK_COMPONENTS_ALL softrdma)
set(CPACK_COMPONENTS_GROUPING ALL_COMPONENTS_IN_ONE)
set(CPACK_DEB_COMPONENT_INSTALL ON)
set(CPACK_ARCHIVE_COMPONENT_INSTALL ON)
set(CPACK_STRIP_FILES ON)
set(CPACK_PACKAGE_FILE_NAME softrdma_${PROJECT_VERSION}_${architecture})
set(CPACK_PACKAGING_INSTALL_PREFIX /usr)
set(CPACK_PACKAGE_DIRECTORY ${PROJECT_BINARY_DIR})
set(CPACK_RESOURCE_FILE_LICENSE ${PROJECT_SOURCE_DIR}/LICENSE)
set(CPACK_DEBIAN_PACKAGE_SECTION utils)
set(CPACK_DEBIAN_PACKAGE_DEPENDS "libc6 (>= 2.34), libgcc-s1")
set(CPACK_DEBIAN_PACKAGE_RECOMMENDS libibverbs1)
set(CPACK_DEBIAN_PACKAGE_SUGGESTS "libdw1, perftest, rdmacm-utils, ibverbs-utils")
include(CPack)
