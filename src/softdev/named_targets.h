// named_targets.h - the targets of requests that each name theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "softdev/local_wire.h"

namespace rdmacomm::softdev {

/// Wires to targets that are looked for when the first request goes to them, and kept for the next.
class NamedTargets {
 public:
  explicit NamedTargets(const LocalEnd& own) : own_(own) {}

  /// The wire to `number`. It is not up where nothing with that number was found; it will be looked for again.
  [[nodiscard]] LocalWire& get(std::uint32_t number) {
    const auto known = by_number_.find(number);
    if (known != by_number_.end()) {
      if (known->second.is_up()) return known->second;
      by_number_.erase(known);
    }
    if (by_number_.size() >= kMost) by_number_.clear();
    LocalWire& wire = by_number_.try_emplace(number, own_, number).first->second;
    wire.attach();
    return wire;
  }

  /// The wire to `number` if get() has found it and it is still up, else nullptr. Looks for nothing, so it waits for nobody.
  [[nodiscard]] LocalWire* known(std::uint32_t number) noexcept {
    const auto found = by_number_.find(number);
    return found != by_number_.end() && found->second.is_up() ? &found->second : nullptr;
  }

 private:
  /// More are not kept.
  static constexpr std::size_t kMost = 4096;
  const LocalEnd own_;
  std::map<std::uint32_t, LocalWire> by_number_;
};

}  // namespace rdmacomm::softdev
