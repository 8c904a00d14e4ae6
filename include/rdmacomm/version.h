// version.h - which rdmacomm this is.
// Layer: base.
#pragma once

#if __cplusplus < 202002L
#error "rdmacomm needs C++20: compile with -std=c++20"
#endif

// Of these headers. The one place where the numbers stand: CMake reads them here.
#define RDMACOMM_VERSION_MAJOR 0
#define RDMACOMM_VERSION_MINOR 1
#define RDMACOMM_VERSION_PATCH 0
/// One number to compare: 100 is 0.1.0, 10203 is 1.2.3.
#define RDMACOMM_VERSION (RDMACOMM_VERSION_MAJOR * 10000 + RDMACOMM_VERSION_MINOR * 100 + RDMACOMM_VERSION_PATCH)

/// What the shared library has for programs. Everything else in it is hidden: two versions of the library, or a
/// program's own names, do not get into each other's way.
#define RDMACOMM_API [[gnu::visibility("default")]]
/// Of a class that the shared library has for programs: a function that only the library calls.
#define RDMACOMM_LOCAL [[gnu::visibility("hidden")]]

namespace rdmacomm {

/// The version of the library that the program runs with, e.g. "0.1.0". While the major version is 0, programs run only
/// with the minor version that they were compiled for (it is part of the SONAME); the patch level may differ.
[[nodiscard]] RDMACOMM_API const char* version() noexcept;

}  // namespace rdmacomm
