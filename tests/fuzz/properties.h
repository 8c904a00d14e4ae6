// properties.h - conditions that must hold for every input of a fuzz target.
#pragma once

#include <algorithm>
#include <concepts>
#include <cstdio>
#include <cstdlib>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/printable.h"
#include "base/wire.h"
#include "fuzz/target.h"
#include "rdmacomm/result.h"

/// Ends the program and prints the place and the condition, unless the condition holds.
#define RDMACOMM_FUZZ_CHECK(condition) \
  ((condition) ? void() : ::rdmacomm::fuzz::fail_property(__FILE__, __LINE__, #condition))

namespace rdmacomm::fuzz {

[[noreturn]] inline void fail_property(const char* file, int line, const char* condition) {
  std::fprintf(stderr, "%s:%d: this does not hold: %s\n", file, line, condition);
  std::abort();
}

/// A message can only be longer than that if it repeats an input without a limit.
constexpr std::size_t kLongestMessage = 8192;

/// Whether the text only has printable ASCII characters. Not instrumented, because libFuzzer would collect texts of
/// different lengths.
#ifdef __clang__
__attribute__((no_sanitize("coverage")))
#endif
inline bool
is_plain(std::string_view text) {
  for (const char character : text) {
    if (character < ' ' || character > '~') return false;
  }
  return true;
}

/// The text is one line, without control sequences for a terminal.
inline void check_harmless(std::string_view text) {
  if (is_plain(text)) return;
  while (!text.empty()) {
    const std::size_t length = printable_character(text);
    RDMACOMM_FUZZ_CHECK(length > 0);
    text.remove_prefix(length);
  }
}

/// The error has a code and a readable message.
inline void check_error(const Error& error) {
  RDMACOMM_FUZZ_CHECK(static_cast<bool>(error.code));
  RDMACOMM_FUZZ_CHECK(!error.context.empty());
  RDMACOMM_FUZZ_CHECK(error.message().size() <= kLongestMessage);
  check_harmless(error.message());
}

/// The result is success or a valid error. Returns whether it is success.
template <typename Outcome>
bool check_outcome(const Outcome& outcome) {
  if (outcome) return true;
  if constexpr (requires { outcome.status(); }) {
    check_error(outcome.status().error());
  } else {
    check_error(outcome.error());
  }
  return false;
}

inline std::string_view text_of(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}
inline std::vector<std::byte> bytes_of(std::string_view text) {
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}
inline std::vector<std::byte> operator+(std::vector<std::byte> bytes, Bytes more) {
  for (const std::byte byte : more) bytes.push_back(byte);
  return bytes;
}

/// Encodes a value by the encode() of its type.
template <typename T>
std::vector<std::byte> packed(const T& value) {
  if constexpr (requires { value.encode(); }) {
    const auto bytes = value.encode();
    return {bytes.begin(), bytes.end()};
  } else {
    WireWriter writer;
    value.encode(writer);
    return writer.take();
  }
}

/// Decodes the value at the start of the input, by the decode() of its type. Also returns how many bytes were read.
template <typename T>
std::pair<Result<T>, std::size_t> unpacked(Bytes bytes) {
  if constexpr (requires { T::decode(bytes); }) {
    return {T::decode(bytes), bytes.size()};
  } else {
    WireReader reader(bytes);
    auto value = T::decode(reader);
    return {std::move(value), bytes.size() - reader.remaining()};
  }
}

/// Whether a value has only one wire form, so that each accepted input equals it.
enum class Form { kOnlyOne, kSeveral };

/// Parses the input as a T. The wire form of an accepted value is parsed to the same value again. An error must be
/// valid.
template <typename T>
std::optional<T> check_decode(Bytes input, Form form = Form::kSeveral) {
  auto [value, read] = unpacked<T>(input);
  if (!check_outcome(value)) return {};
  const std::vector<std::byte> wire = packed(*value);
  if (form == Form::kOnlyOne) RDMACOMM_FUZZ_CHECK(std::ranges::equal(wire, input.first(read)));
  const auto again = unpacked<T>(wire);
  RDMACOMM_FUZZ_CHECK(again.first.has_value());
  RDMACOMM_FUZZ_CHECK(again.second == wire.size());
  RDMACOMM_FUZZ_CHECK(std::ranges::equal(packed(*again.first), wire));
  if constexpr (std::equality_comparable<T>) RDMACOMM_FUZZ_CHECK(*again.first == *value);
  return std::move(*value);
}

}  // namespace rdmacomm::fuzz
