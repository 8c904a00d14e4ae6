// segment_window.h - who may send how many segments: the receives that the peer has posted. Private to the layer.
#pragma once

#include <cstdint>

namespace rdmacomm {

/// Each side posts `slots` receives and posts each again once it is emptied. A segment tells how many the sender has
/// posted again since its last one (credits), so neither side ever sends to a receive that is not there, which iWARP
/// would end the connection for. The last credit is kept for a segment that does nothing but give credits: else two
/// sides could wait for each other's. A value. Threads: one at a time.
class SegmentWindow {
 public:
  /// own: receives posted here; peers: receives posted there.
  SegmentWindow(std::uint16_t own, std::uint16_t peers) noexcept : own_(own), peers_(peers), credits_(peers) {}

  /// Whether a segment with data may go out.
  [[nodiscard]] bool may_send() const noexcept { return credits_ > 1; }
  /// Whether a segment should go out that gives credits alone: half of the receives are news to the peer.
  [[nodiscard]] bool should_give() const noexcept { return credits_ > 0 && owed_ * 2 >= own_; }
  /// A segment goes out; the credits that it gives.
  [[nodiscard]] std::uint16_t sent() noexcept {
    --credits_;
    const std::uint16_t given = owed_;
    owed_ = 0;
    return given;
  }
  /// A segment came in and gives `credits`. False: more than there are receives; the peer is broken.
  [[nodiscard]] bool received(std::uint16_t credits) noexcept {
    if (credits > peers_ - credits_) return false;
    credits_ = static_cast<std::uint16_t>(credits_ + credits);
    return true;
  }
  /// A receive was posted again.
  void posted_again() noexcept { ++owed_; }

 private:
  std::uint16_t own_;
  std::uint16_t peers_;
  std::uint16_t credits_;
  std::uint16_t owed_ = 0;
};

}  // namespace rdmacomm
