// wire.h - carries the requests of one send queue to their target.
//
// The queue pair (soft_qp.h) keeps queues, order, retries and completions. A wire executes one request: through shared
// memory on one host (local_wire.h), or a datagram to any target (datagram_wire.h). Requests of connected queue pairs
// to other hosts take time, and many are in progress at once. They use a TcpWire (tcp_wire.h), which is no Wire.
#pragma once

#include <infiniband/verbs.h>
#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "softdev/host/traffic.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

enum class ExecOutcome : std::uint8_t {
  kDone,              ///< executed, or refused for good: see `status`
  kReceiverNotReady,  ///< no receive posted: retry after the target's RNR timer
  kUnreachable,       ///< no target accepts the request: retry until the ACK timeouts are used up
  kLost,              ///< the target has ended for good
  kBusy,              ///< no room on the path to the target: retry soon
};

/// The result of a request, in one word that is returned in a register. Separate members would be
/// stored in memory and read back as one wide word. Then the processor would wait until all earlier stores have reached
/// the cache, also those of the message.
class ExecResult {
 public:
  /// Done: `bytes` of the message were executed with success, or `status` is the reason of a final refusal.
  [[nodiscard]] static constexpr ExecResult done(std::uint32_t bytes, ibv_wc_status status = IBV_WC_SUCCESS) noexcept {
    return ExecResult(std::uint64_t{bytes} << 32 | static_cast<std::uint64_t>(status) << 8);
  }
  /// A message of an unreliable queue pair that its target did not take. It completes with success.
  [[nodiscard]] static constexpr ExecResult lost(std::uint32_t bytes) noexcept {
    return ExecResult(std::uint64_t{bytes} << 32 | kLostMark);
  }
  [[nodiscard]] static constexpr ExecResult refused(ibv_wc_status status) noexcept { return done(0, status); }
  /// The request had no effect, for a reason that may be temporary.
  constexpr ExecResult(ExecOutcome outcome) noexcept  // NOLINT(google-explicit-constructor)
      : word_(static_cast<std::uint64_t>(outcome)) {}

  [[nodiscard]] constexpr ExecOutcome outcome() const noexcept { return static_cast<ExecOutcome>(word_ & 0xff); }
  [[nodiscard]] constexpr ibv_wc_status status() const noexcept {
    return static_cast<ibv_wc_status>(word_ >> 8 & 0xff);
  }
  [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return static_cast<std::uint32_t>(word_ >> 32); }
  /// Executed, refused for good, or lost.
  [[nodiscard]] constexpr bool is_done() const noexcept { return outcome() == ExecOutcome::kDone; }
  [[nodiscard]] constexpr bool succeeded() const noexcept { return static_cast<std::uint32_t>(word_) == 0; }
  [[nodiscard]] constexpr bool is_lost() const noexcept { return (word_ & kLostMark) != 0; }

 private:
  static constexpr std::uint64_t kLostMark = 1U << 16;
  explicit constexpr ExecResult(std::uint64_t word) noexcept : word_(word) {}
  std::uint64_t word_;
};

/// Looks for a target without using the queue pair. It may wait for a stopped target, which delays only the threads
/// that need the same target.
class TargetSearch {
 public:
  TargetSearch() = default;
  TargetSearch(const TargetSearch&) = delete;
  TargetSearch& operator=(const TargetSearch&) = delete;
  virtual ~TargetSearch() = default;
  /// May wait for the target's answer.
  virtual void run() noexcept = 0;
};

/// A search that one thread runs for another one, which must not wait.
class LaterSearch {
 public:
  explicit LaterSearch(std::unique_ptr<TargetSearch> search) noexcept : search_(std::move(search)) {}

  /// Called by the searching thread.
  void run() noexcept {
    search_->run();
    is_done_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool is_done() const noexcept { return is_done_.load(std::memory_order_acquire); }
  /// Call only after is_done().
  [[nodiscard]] TargetSearch& result() noexcept { return *search_; }

 private:
  const std::unique_ptr<TargetSearch> search_;
  std::atomic<bool> is_done_{false};
};

class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;

  /// Executes one whole request, or returns the reason why not. If the result is not kDone, the request had no effect.
  /// Called under the send queue's lock. The caller has checked only opcode, counts and queue pair state.
  [[nodiscard]] virtual ExecResult exec(const ibv_send_wr& wr) noexcept = 0;
  /// From now on, requests have these terms. Required before the first request, unless each request names its own
  /// target.
  /// life  of the queue pair, if has_psn(): after a RESET, its PSN is not the next one that the target expects
  virtual void begin(const LinkTerms& /*terms*/, std::uint32_t /*life*/) noexcept {}
  /// Maximum number of READs and atomics at a time that the target accepts; UINT32_MAX: not known.
  [[nodiscard]] virtual std::uint32_t target_read_depth() const noexcept { return UINT32_MAX; }
  /// The next request is a READ or atomic, and at most this number of them are in progress at the target, itself
  /// included.
  virtual void expect_reads(std::uint32_t /*count*/) noexcept {}
  /// True if the target is not found yet. Always false if each request names its own target.
  [[nodiscard]] virtual bool lacks_target() const noexcept { return false; }
  /// The search for the target. Only if lacks_target().
  [[nodiscard]] virtual std::unique_ptr<TargetSearch> search() const { return nullptr; }
  /// Takes the result of such a search, if it is still useful.
  virtual void take_found(TargetSearch& /*search*/) noexcept {}
  /// After kUnreachable: the reason, for a log line, as why_refused().
  [[nodiscard]] virtual std::string why_unreachable() const { return {}; }
  /// Sends and receives what is possible on a socket without waiting.
  virtual void advance() noexcept {}
  /// The process of the target; 0: unknown, or it has ended.
  [[nodiscard]] virtual pid_t target_process() const noexcept { return 0; }
  /// Reports to the target that a request was refused with this status, as if the target had refused it.
  virtual void report_refused(ibv_wc_status /*status*/) noexcept {}
  /// The target's min_rnr_timer code.
  [[nodiscard]] virtual std::uint32_t rnr_timer_code() const noexcept = 0;
  /// The device of the target, for TrafficCell::target.
  [[nodiscard]] virtual std::uint32_t target_device() const noexcept { return TrafficCell::kElsewhere; }
};

}  // namespace rdmacomm::softdev
