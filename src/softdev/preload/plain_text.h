// plain_text.h - functions on text that call no other library, not even the C library.
//
// A sanitizer's runtime looks functions up before it is ready, and its versions of strlen() and memcmp(), which
// std::string_view calls, do not work yet.
#pragma once

namespace rdmacomm::softdev::preload {

[[nodiscard]] inline bool is_equal(const char* one, const char* other) noexcept {
  while (*one != '\0' && *one == *other) ++one, ++other;
  return *one == *other;
}

[[nodiscard]] inline bool begins_with(const char* text, const char* start) noexcept {
  while (*start != '\0' && *text == *start) ++text, ++start;
  return *start == '\0';
}

/// The part of a path after its last slash.
[[nodiscard]] inline const char* file_name(const char* path) noexcept {
  const char* last = path;
  for (; *path != '\0'; ++path) {
    if (*path == '/') last = path + 1;
  }
  return last;
}

}  // namespace rdmacomm::softdev::preload
