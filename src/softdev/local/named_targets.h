// named_targets.h - wires for requests that each name their target.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "softdev/local/local_wire.h"
#include "softdev/local/target_finder.h"
#include "softdev/local/wire.h"

namespace rdmacomm::softdev {

/// Wires to targets. A target is looked for at the first request to it, and its wire is kept for later requests.
class NamedTargets {
 public:
  explicit NamedTargets(const LocalEnd& own) : own_(own) {}

  /// The wire to `number`. If no such target was found, the wire is not up, and the next call looks again.
  [[nodiscard]] LocalWire& get(std::uint32_t number) {
    if (LocalWire* const there = known(number)) return *there;
    LocalWire& wire = anew(number);
    wire.attach();
    return wire;
  }

  /// The same for a thread that must not wait: `finder` looks for the target. Returns nullptr: the search for this or
  /// another number is still running; call again later.
  [[nodiscard]] LocalWire* get(std::uint32_t number, TargetFinder& finder) {
    if (LocalWire* const there = known(number)) return there;
    if (search_ == nullptr) {
      searched_for_ = number;
      search_ = std::make_shared<LaterSearch>(anew(number).search());
      if (!finder.make(search_)) search_.reset();
      return nullptr;
    }
    if (!search_->is_done()) return nullptr;
    const std::shared_ptr<LaterSearch> done = std::move(search_);
    const auto wire = by_number_.find(searched_for_);
    if (searched_for_ != number || wire == by_number_.end()) return nullptr;
    wire->second.take_found(done->result());
    return &wire->second;
  }

  /// Returns the wire to `number` if get() has found it and it is still up, else nullptr. Does not search, so it never
  /// waits.
  [[nodiscard]] LocalWire* known(std::uint32_t number) noexcept {
    const auto found = by_number_.find(number);
    return found != by_number_.end() && found->second.is_up() ? &found->second : nullptr;
  }

 private:
  /// Upper bound of the wires kept.
  static constexpr std::size_t kMax = 4096;

  LocalWire& anew(std::uint32_t number) {
    by_number_.erase(number);
    if (by_number_.size() >= kMax) by_number_.clear();
    return by_number_.try_emplace(number, own_, number).first->second;
  }

  const LocalEnd own_;
  std::map<std::uint32_t, LocalWire> by_number_;
  std::uint32_t searched_for_ = 0;
  std::shared_ptr<LaterSearch> search_;
};

}  // namespace rdmacomm::softdev
