// loaded_objects.h - the symbols of libraries that are loaded in this process, without dlsym.
#pragma once

#include <string_view>

namespace rdmacomm::softdev::preload {

/// The default version of the function that the loaded library with this file name defines, looked up in its symbol
/// table. Needs no memory and no lock of its own, and does not change dlerror().
/// file      "libc.so.6" also finds "/lib/libc.so.6"
/// Returns   nullptr: no such library, or it does not define the function
[[nodiscard]] void* function_of_file(std::string_view file, const char* name) noexcept;

/// The same for the library that contains `address`.
[[nodiscard]] void* function_of_library_at(const void* address, const char* name) noexcept;

}  // namespace rdmacomm::softdev::preload
