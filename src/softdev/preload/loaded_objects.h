// loaded_objects.h - the symbols of libraries that are loaded in this process, without dlsym.
#pragma once

namespace rdmacomm::softdev::preload {

/// The default version of the function that the loaded library with this file name defines, looked up in its symbol
/// table. Needs no memory and no lock of its own, and does not change dlerror().
/// file      "libc.so.6" also finds "/lib/libc.so.6"
/// Returns   nullptr: no such library, or it does not define the function
/// Threads: any. The library must have been loaded with the program.
[[nodiscard]] void* function_of_file(const char* file, const char* name) noexcept;

/// The same for this library.
[[nodiscard]] void* function_of_this_library(const char* name) noexcept;

}  // namespace rdmacomm::softdev::preload
