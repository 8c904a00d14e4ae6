// named_targets.h - the targets of requests that each name theirs.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "softdev/local/local_wire.h"
#include "softdev/local/target_finder.h"
#include "softdev/local/wire.h"

namespace rdmacomm::softdev {

/// Wires to targets that are looked for when the first request goes to them, and kept for the next.
class NamedTargets {
 public:
  explicit NamedTargets(const LocalEnd& own) : own_(own) {}

  /// The wire to `number`. It is not up where nothing with that number was found; it will be looked for again.
  [[nodiscard]] LocalWire& get(std::uint32_t number) {
    if (LocalWire* const there = known(number)) return *there;
    LocalWire& wire = anew(number);
    wire.attach();
    return wire;
  }

  /// The same for a thread that must not wait: `finder` looks. nullptr: it does so still, or another number is waited for; ask again.
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

  /// The wire to `number` if get() has found it and it is still up, else nullptr. Looks for nothing, so it waits for nobody.
  [[nodiscard]] LocalWire* known(std::uint32_t number) noexcept {
    const auto found = by_number_.find(number);
    return found != by_number_.end() && found->second.is_up() ? &found->second : nullptr;
  }

 private:
  /// More are not kept.
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
