// hazard.h - keeps a target from withdrawing memory that an initiator is using.
//
// An initiator raises the target's flag (QpShared::busy), then reads link word and registrations, and uses them. The
// target invalidates one of those, then reads the flag, and waits while it is up. Each of the two must see the other's
// store before its own load. This needs a barrier in both processes, or in the target alone, see base/membarrier.h.
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

/// The time that a target waits for one initiator's flag. Any request is carried out in that time, even if the
/// initiator loses its core meanwhile. An initiator that needs longer is treated as stopped: see stragglers.h.
inline constexpr std::chrono::milliseconds kLongestRequest{1000};

/// A write by address is split into pieces of at most kLongestPiece bytes, one system call each. Such a call completes
/// even if the initiator is stopped. So the target waits for a call that has begun: kLongestCall, which is enough even
/// if each page is read from a disk.
inline constexpr std::size_t kLongestPiece = std::size_t{1} << 20;
inline constexpr std::chrono::milliseconds kLongestCall{4000};

/// The initiator's part: the flag is up during the lifetime of this object.
class Hazard {
 public:
  /// by_membarrier  both processes are registered for membarrier(2).
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
  /// Takes the flag down before the initiator's next load, for the same reason.
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

/// The target's part when the queue pair enters the error state, in this order. A thread that sees the error state and
/// the flag down flushes the receives. So before that, no initiator may find the link word any more, and an initiator
/// that found it earlier must show its flag.
/// await  await_visibility(), or a test's own function.
template <typename Await>
void end_link(QpShared& target, std::atomic<ibv_qp_state>& state, Await&& await) noexcept {
  target.link.store(0, std::memory_order_seq_cst);
  await();
  state.store(IBV_QPS_ERR, std::memory_order_seq_cst);
}

/// Marks in the flag, which is up, that memory is written by its address. After that, the initiator reads link word and
/// registration again. If one is invalid now, it does not write: the target may have read the flag before the mark and
/// then does not wait.
class ByAddress {
 public:
  /// For a write by a thread in the target process.
  ByAddress(QpShared& target, bool by_membarrier) noexcept : target_(target), before_(flag()) {
    raise(kInOwnProcess, by_membarrier);
  }
  /// For a write by one system call, which takes target.write: `length` bytes to `address`, then before() to
  /// `flag_address`.
  ByAddress(QpShared& target, bool by_membarrier, std::uint64_t address, std::size_t length,
            std::uint64_t flag_address) noexcept
      : target_(target), before_(flag()) {
    target.write.give(address, length, flag_address);
    raise(kByAddress, by_membarrier);
  }
  ByAddress(const ByAddress&) = delete;
  ByAddress& operator=(const ByAddress&) = delete;
  ~ByAddress() { target_.busy.store(before_, std::memory_order_release); }
  /// The flag's value before this object, which its destructor restores.
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

/// The initiator's part for a target with many initiators. One initiator at a time works there; the flag holds its
/// number.
class ContendedHazard {
 public:
  /// waits  true: also waits for an initiator that has lost its core. Use false on a thread that serves others.
  ContendedHazard(QpShared& target, std::uint32_t initiator, bool waits = true) noexcept
      : target_(target), mine_(take(target, initiator, waits)) {}
  ContendedHazard(const ContendedHazard&) = delete;
  ContendedHazard& operator=(const ContendedHazard&) = delete;
  ~ContendedHazard() {
    if (mine_) target_.busy.exchange(0, std::memory_order_seq_cst);
  }
  /// False: the current holder has not released the flag in time; it may be stopped.
  [[nodiscard]] explicit operator bool() const noexcept { return mine_; }

 private:
  static bool take(QpShared& target, std::uint32_t initiator, bool waits) noexcept {
    constexpr int kSpins = 1000;
    constexpr std::chrono::milliseconds kLongest{250};  // enough for a holder that has lost its core to get it back
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
