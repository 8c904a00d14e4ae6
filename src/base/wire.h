// wire.h - little-endian encoding and decoding of bytes that leave the process.
// Layer: base.   The formats built from these: docs/wire_format.md
#pragma once

#include <concepts>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace rdmacomm {

/// Appends fields, little-endian, to a growing byte string.
class WireWriter {
 public:
  template <std::unsigned_integral T>
  void put(T value) {
    for (std::size_t i = 0; i < sizeof(T); ++i) bytes_.push_back(static_cast<std::byte>(value >> (8 * i)));
  }
  void put_bytes(std::span<const std::byte> bytes) {
    // insert() is not used, because GCC 12, when it optimizes, warns of an overflow in it that does not exist.
    for (const std::byte byte : bytes) bytes_.push_back(byte);
  }
  /// Writes the length in 16 bits, then the text. Text after 65535 bytes is cut off.
  void put_text(std::string_view text) {
    text = text.substr(0, 0xffff);
    put(static_cast<std::uint16_t>(text.size()));
    put_bytes(std::as_bytes(std::span(text)));
  }

  [[nodiscard]] std::span<const std::byte> bytes() const noexcept { return bytes_; }
  [[nodiscard]] std::vector<std::byte> take() { return std::move(bytes_); }

 private:
  std::vector<std::byte> bytes_;
};

/// Takes fields off the front of a byte string. A read past the end yields zeroes and makes ok() false for good. A
/// decoder therefore reads all its fields, then checks ok() once.
class WireReader {
 public:
  explicit WireReader(std::span<const std::byte> bytes) : rest_(bytes) {}

  template <std::unsigned_integral T>
  [[nodiscard]] T get() {
    T value = 0;
    const auto from = take(sizeof(T));
    for (std::size_t i = 0; i < from.size(); ++i) value |= static_cast<T>(static_cast<T>(from[i]) << (8 * i));
    return value;
  }
  /// The next `count` bytes; empty if fewer are left. They point into the original bytes.
  [[nodiscard]] std::span<const std::byte> take(std::size_t count) {
    if (count > rest_.size()) {
      ok_ = false;
      rest_ = {};
      return {};
    }
    const auto taken = rest_.first(count);
    rest_ = rest_.subspan(count);
    return taken;
  }
  [[nodiscard]] std::string get_text() {
    const auto from = take(get<std::uint16_t>());
    return {reinterpret_cast<const char*>(from.data()), from.size()};
  }

  [[nodiscard]] bool ok() const noexcept { return ok_; }
  [[nodiscard]] std::size_t remaining() const noexcept { return rest_.size(); }

 private:
  std::span<const std::byte> rest_;
  bool ok_ = true;
};

}  // namespace rdmacomm
