#include "softdev/check/ranges.h"

#include <bit>

namespace rdmacomm::softdev::check {

unsigned Ranges::class_of(std::uint64_t length) noexcept {
  return static_cast<unsigned>(std::bit_width(length)) - 1;
}

void Ranges::insert(std::uint64_t address, const Range& range) {
  classes_[class_of(range.length)].emplace(Key(address, range.request), range);
}

void Ranges::erase(std::uint64_t address, std::uint64_t length, const Request* request) {
  Class& same = classes_[class_of(length)];
  auto [at, end] = same.equal_range(Key(address, request));
  for (; at != end; ++at) {
    if (at->second.length != length) continue;
    same.erase(at);
    return;
  }
}

void Ranges::for_each(std::uint64_t address, std::uint64_t length,
                      const std::function<bool(std::uint64_t, const Range&)>& function) const {
  for (unsigned n = 0; n < classes_.size(); ++n) {
    if (classes_[n].empty()) continue;
    const std::uint64_t longest = n >= 63 ? UINT64_MAX : (std::uint64_t{2} << n) - 1;
    const std::uint64_t first = address > longest ? address - longest : 0;
    for (auto at = classes_[n].lower_bound({first, nullptr}); at != classes_[n].end(); ++at) {
      const std::uint64_t begin = at->first.first;
      if (begin >= address + length) break;
      if (begin + at->second.length > address && !function(begin, at->second)) return;
    }
  }
}

}  // namespace rdmacomm::softdev::check
