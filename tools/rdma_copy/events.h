// events.h - the callbacks of a copy.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace rdmacomm::copying {

/// Functions may be empty. They are called on the thread that copies. `failed` is also called on another thread,
/// possibly at the same time.
struct Events {
  /// A file, directory or link is next; `size` is that of a file.
  std::function<void(const std::string& path, std::uint64_t size)> entry = {};
  /// `bytes` more of the file are done.
  std::function<void(std::uint64_t bytes)> moved = {};
  /// An entry could not be copied; the copy continues. One line.
  std::function<void(const std::string& text)> failed = {};
};

}  // namespace rdmacomm::copying
