#include "lat_bw_benchmark/verification.h"

#include "support/pattern.h"

namespace rdmacomm::benchmark {

void corrupt_one_byte(std::span<std::byte> bytes) {
  if (bytes.size() > 1) bytes[(bytes.size() - 1) / 2] ^= std::byte{0x20};
}

void Verifier::compare(std::span<const std::byte> bytes, std::uint64_t seed, const char* what) {
  ++checked_;
  const std::size_t at = programs::first_difference(bytes, seed);
  if (at == bytes.size()) return;
  found(std::string(what) + ": " + programs::difference_text(bytes, at, seed));
}

void Verifier::check_number(std::uint64_t is, std::uint64_t should_be, const char* what) {
  if (!on_) return;
  ++checked_;
  if (is == should_be) return;
  found(std::string(what) + ": is " + std::to_string(is) + " and should be " + std::to_string(should_be));
}

void Verifier::found(std::string text) {
  if (corrupt_++ == 0) first_corruption_ = std::move(text);
}

}  // namespace rdmacomm::benchmark
