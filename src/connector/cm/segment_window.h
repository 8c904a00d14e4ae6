// segment_window.h - flow control by credits: the receives that the peer has posted. Private to the layer.
#pragma once

#include <cstdint>

namespace rdmacomm {

/// Each peer posts `slots` receives and posts each again once it is emptied. A segment tells how many its sender has
/// posted again since its last one (credits). Therefore no peer sends to a receive that is not posted; iWARP would end
/// the connection for that. The last credit is kept for a segment that only gives credits: otherwise each peer could
/// wait for the other's credits. A value. Threads: one at a time.
class SegmentWindow {
 public:
  /// own: receives posted locally; peers: receives posted by the peer.
  SegmentWindow(std::uint16_t own, std::uint16_t peers) noexcept : own_(own), peers_(peers), credits_(peers) {}

  /// Whether a segment with data may go out.
  [[nodiscard]] bool may_send() const noexcept { return credits_ > 1; }
  /// Whether to send a segment that only gives credits: the peer does not know of half of the posted receives yet.
  [[nodiscard]] bool should_give() const noexcept { return credits_ > 0 && owed_ * 2 >= own_; }
  /// A segment is sent. Returns the credits that it gives.
  [[nodiscard]] std::uint16_t sent() noexcept {
    --credits_;
    const std::uint16_t given = owed_;
    owed_ = 0;
    return given;
  }
  /// A segment arrived and gives `credits`. Returns false if they exceed the peer's receives: the peer is broken.
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
