// fnv1a.h - the hash FNV-1a with 64 bits, for names and GUIDs. Not for data that an attacker chooses.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

namespace rdmacomm::softdev {

class Fnv1a {
 public:
  void add(const void* data, std::size_t length) noexcept {
    const auto* const bytes = static_cast<const unsigned char*>(data);
    for (std::size_t i = 0; i < length; ++i) value_ = (value_ ^ bytes[i]) * 0x100000001b3;
  }
  void add(std::uint64_t number) noexcept { add(&number, sizeof(number)); }
  /// With its length, so that the same text in other parts has another hash.
  void add(std::string_view text) noexcept {
    add(text.data(), text.size());
    add(std::uint64_t{text.size()});
  }
  [[nodiscard]] std::uint64_t value() const noexcept { return value_; }

 private:
  std::uint64_t value_ = 0xcbf29ce484222325;
};

}  // namespace rdmacomm::softdev
