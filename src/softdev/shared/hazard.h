// hazard.h - keeping a target from taking away what an initiator is using.
//
// An initiator raises the target's flag (QpShared::busy), then looks at link word and registrations, and uses them;
// the target invalidates one of those, then looks at the flag, and waits while it is up. Either side must see the
// other's store before its own load: by a barrier on both sides, or by the target's alone, see base/membarrier.h.
#pragma once

#include <sched.h>

#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>

#include "base/membarrier.h"
#include "base/spin_lock.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

/// A target waits that long for one initiator's flag: any request is carried out in that time, also by an initiator that
/// has lost its core. One that needs longer is stopped: see stragglers.h.
inline constexpr std::chrono::milliseconds kLongestRequest{1000};

/// A write by address goes in pieces of that many bytes, a system call each. Such a call ends although the initiator is stopped, so one
/// that has begun is waited for: kLongestCall, also where each page has to be fetched from a disk.
inline constexpr std::size_t kLongestPiece = std::size_t{1} << 20;
inline constexpr std::chrono::milliseconds kLongestCall{4000};

/// The initiator's half: the flag is up while this lives.
class Hazard {
 public:
  /// by_membarrier: both processes are registered.
  Hazard(QpShared& target, bool by_membarrier) noexcept : target_(target), by_membarrier_(by_membarrier) {
    if (by_membarrier) {
      target_.busy.store(1, std::memory_order_relaxed);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      target_.busy.exchange(1, std::memory_order_seq_cst);
    }
  }
  Hazard(const Hazard&) = delete;
  Hazard& operator=(const Hazard&) = delete;
  /// Takes the flag down before whatever the initiator looks at next, for the same reason.
  ~Hazard() {
    if (by_membarrier_) {
      target_.busy.store(0, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      target_.busy.exchange(0, std::memory_order_seq_cst);
    }
  }

 private:
  QpShared& target_;
  const bool by_membarrier_;
};

/// The target's half, where the queue pair goes into the error state: in this order. Whoever finds it there, and its flag down, flushes
/// its receives, so by then no initiator may find the link word any more, and one that found it before shows its flag.
/// `await`: await_visibility(), or what a test does at that moment.
template <typename Await>
void end_link(QpShared& target, std::atomic<ibv_qp_state>& state, Await&& await) noexcept {
  target.link.store(0, std::memory_order_seq_cst);
  await();
  state.store(IBV_QPS_ERR, std::memory_order_seq_cst);
}

/// Says beside the flag, which is up, that memory is written by its address. The initiator looks at link word and
/// registration once more after this went up: if one is invalid by now, the target may have looked before, and does not wait.
class ByAddress {
 public:
  /// By a thread of the target's own process.
  ByAddress(QpShared& target, bool by_membarrier) noexcept : target_(target), before_(flag()) {
    raise(kInOwnProcess, by_membarrier);
  }
  /// By one system call, which takes target.write: `length` bytes to `address`, then before() to `flag_address`.
  ByAddress(QpShared& target, bool by_membarrier, std::uint64_t address, std::size_t length,
            std::uint64_t flag_address) noexcept
      : target_(target), before_(flag()) {
    target.write.give(address, length, flag_address);
    raise(kByAddress, by_membarrier);
  }
  ByAddress(const ByAddress&) = delete;
  ByAddress& operator=(const ByAddress&) = delete;
  ~ByAddress() { target_.busy.store(before_, std::memory_order_release); }
  /// What the flag is when this is over.
  [[nodiscard]] std::uint32_t before() const noexcept { return before_; }

 private:
  [[nodiscard]] std::uint32_t flag() const noexcept { return target_.busy.load(std::memory_order_relaxed); }
  void raise(std::uint32_t how, bool by_membarrier) noexcept {
    if (by_membarrier) {
      target_.busy.store(before_ | how, std::memory_order_release);
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      target_.busy.exchange(before_ | how, std::memory_order_seq_cst);
    }
  }

  QpShared& target_;
  const std::uint32_t before_;
};

/// The initiator's half where a target has many: one is at work there at a time, and its number is the flag.
class ContendedHazard {
 public:
  /// waits  for one that has lost its core, too; false: for a thread that has others to serve
  ContendedHazard(QpShared& target, std::uint32_t initiator, bool waits = true) noexcept
      : target_(target), mine_(take(target, initiator, waits)) {}
  ContendedHazard(const ContendedHazard&) = delete;
  ContendedHazard& operator=(const ContendedHazard&) = delete;
  ~ContendedHazard() {
    if (mine_) target_.busy.exchange(0, std::memory_order_seq_cst);
  }
  /// false: whoever has it did not let go of it for a while; it may be stopped.
  [[nodiscard]] explicit operator bool() const noexcept { return mine_; }

 private:
  static bool take(QpShared& target, std::uint32_t initiator, bool waits) noexcept {
    constexpr int kSpins = 1000;
    constexpr std::chrono::milliseconds kLongest{250};  // enough for one that has lost its core to get it back
    std::chrono::steady_clock::time_point give_up_at{};
    for (int spins = 0;; ++spins) {
      std::uint32_t nobody = 0;
      if (target.busy.compare_exchange_weak(nobody, initiator, std::memory_order_seq_cst)) return true;
      if (spins < kSpins) {
        pause_core();
        continue;
      }
      if (!waits) return false;
      const auto now = std::chrono::steady_clock::now();
      if (spins == kSpins) give_up_at = now + kLongest;
      if (now >= give_up_at) return false;
      sched_yield();
    }
  }

  QpShared& target_;
  const bool mine_;
};

}  // namespace rdmacomm::softdev
