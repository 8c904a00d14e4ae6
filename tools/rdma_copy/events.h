// events.h - what whoever copies is told meanwhile.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace rdmacomm::copying {

/// Functions may be empty. They are called from the thread that copies, and `failed` from another one, too, at the same
/// time.
struct Events {
  /// A file, directory or link is next; `size`: of a file.
  std::function<void(const std::string& path, std::uint64_t size)> entry = {};
  /// So much more of the file is done.
  std::function<void(std::uint64_t bytes)> moved = {};
  /// Something could not be copied; all else goes on. One line.
  std::function<void(const std::string& text)> failed = {};
};

}  // namespace rdmacomm::copying
