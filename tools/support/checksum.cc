#include "support/checksum.h"

#include <xxhash.h>

#include <new>

// Selects the code for this processor at run time. Otherwise the library uses code for any x86-64.
#if defined(__x86_64__) && __has_include(<xxh_x86dispatch.h>)
#include <xxh_x86dispatch.h>
#endif

namespace rdmacomm::programs {

void Checksum::Free::operator()(XXH3_state_s* state) const noexcept {
  XXH3_freeState(state);
}

Checksum::Checksum(bool wanted) : state_(wanted ? XXH3_createState() : nullptr) {
  if (!wanted) return;
  if (state_ == nullptr) throw std::bad_alloc();
  XXH3_64bits_reset(state_.get());
}

void Checksum::update(std::span<const std::byte> bytes) noexcept {
  if (state_) XXH3_64bits_update(state_.get(), bytes.data(), bytes.size());
}

std::optional<std::uint64_t> Checksum::value() const noexcept {
  if (!state_) return {};
  return XXH3_64bits_digest(state_.get());
}

}  // namespace rdmacomm::programs
