// verification.h - checks that a message arrives unchanged.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>

namespace rdmacomm::benchmark {

/// Changes one byte in the middle. Does nothing to a single byte, because the receiver may poll it.
void corrupt_one_byte(std::span<std::byte> bytes);

/// Counts the checked and the wrong messages. Does nothing if verification is off.
class Verifier {
 public:
  explicit Verifier(bool on) : on_(on) {}

  [[nodiscard]] bool on() const noexcept { return on_; }
  /// Compares a message with the pattern of `seed`.
  void check(std::span<const std::byte> bytes, std::uint64_t seed, const char* what) {
    if (on_) compare(bytes, seed, what);
  }
  /// Compares a number, for atomics.
  void check_number(std::uint64_t is, std::uint64_t should_be, const char* what);

  [[nodiscard]] std::uint64_t checked() const noexcept { return checked_; }
  [[nodiscard]] std::uint64_t corrupt() const noexcept { return corrupt_; }
  [[nodiscard]] const std::string& first_corruption() const noexcept { return first_corruption_; }

 private:
  void compare(std::span<const std::byte> bytes, std::uint64_t seed, const char* what);
  void found(std::string text);

  bool on_;
  std::uint64_t checked_ = 0;
  std::uint64_t corrupt_ = 0;
  std::string first_corruption_;
};

}  // namespace rdmacomm::benchmark
