// version.h - the version of rdmacomm.
// Layer: base.
#pragma once

#if __cplusplus < 202002L
#error "rdmacomm needs C++20: compile with -std=c++20"
#endif

// The version of these headers. The numbers stand only here; CMake reads them from this file.
/// The first number of the version of these headers.
#define RDMACOMM_VERSION_MAJOR 0
/// The second number. While the major version is 0, a change of it may break programs.
#define RDMACOMM_VERSION_MINOR 1
/// The third number.
#define RDMACOMM_VERSION_PATCH 0
/// The version as one number for comparisons: 100 is 0.1.0, 10203 is 1.2.3.
#define RDMACOMM_VERSION (RDMACOMM_VERSION_MAJOR * 10000 + RDMACOMM_VERSION_MINOR * 100 + RDMACOMM_VERSION_PATCH)

/// Marks names that the shared library exports. All other names in it are hidden, so that they cannot clash with
/// another version of the library or with names of the program.
#define RDMACOMM_API [[gnu::visibility("default")]]
/// Marks a function, in a class that the shared library exports, that only the library calls.
#define RDMACOMM_LOCAL [[gnu::visibility("hidden")]]

/// All names of the library, except macros.
namespace rdmacomm {

/// The version of the library that the program runs with, for example "0.1.0". While the major version is 0, a program
/// runs only with the minor version that it was compiled for (it is part of the SONAME). The patch level may differ.
[[nodiscard]] RDMACOMM_API const char* version() noexcept;

}  // namespace rdmacomm
