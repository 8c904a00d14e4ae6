// wire.h - how the requests of one send queue reach their target.
//
// The queue pair (soft_qp.h) keeps queues, order, retries and completions; a wire carries one request out: through shared
// memory on one host (local_wire.h), and datagrams to wherever they go (datagram_wire.h). Requests of connected queue pairs
// to other hosts are under way for a while, many at a time: that is not a Wire, but a TcpWire (tcp_wire.h).
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace rdmacomm::softdev {

enum class ExecOutcome : std::uint8_t {
  kDone,              ///< carried out, or refused for good: `status` says which
  kReceiverNotReady,  ///< no receive posted: again after the target's RNR timer
  kUnreachable,       ///< no target that accepts requests from here: again until the ACK timeouts are used up
  kLost,              ///< the target is gone for good
  kBusy,              ///< no room on its way to the target: again soon
};

/// What became of a request. One word, which travels in a register: put together in memory from its parts it would be
/// read back wider than it was written, and the processor then waits until every store before it, those of the
/// message itself among them, has reached the cache.
class ExecResult {
 public:
  /// Done: carried out with success, `bytes` of the message; or refused for good, as `status` says.
  [[nodiscard]] static constexpr ExecResult done(std::uint32_t bytes, ibv_wc_status status = IBV_WC_SUCCESS) noexcept {
    return ExecResult(std::uint64_t{bytes} << 32 | static_cast<std::uint64_t>(status) << 8);
  }
  [[nodiscard]] static constexpr ExecResult refused(ibv_wc_status status) noexcept { return done(0, status); }
  /// Had no effect, for a reason that may pass or not.
  constexpr ExecResult(ExecOutcome outcome) noexcept  // NOLINT(google-explicit-constructor)
      : word_(static_cast<std::uint64_t>(outcome)) {}

  [[nodiscard]] constexpr ExecOutcome outcome() const noexcept { return static_cast<ExecOutcome>(word_ & 0xff); }
  [[nodiscard]] constexpr ibv_wc_status status() const noexcept {
    return static_cast<ibv_wc_status>(word_ >> 8 & 0xff);
  }
  [[nodiscard]] constexpr std::uint32_t bytes() const noexcept { return static_cast<std::uint32_t>(word_ >> 32); }
  /// Carried out, or refused for good.
  [[nodiscard]] constexpr bool is_done() const noexcept { return outcome() == ExecOutcome::kDone; }
  [[nodiscard]] constexpr bool succeeded() const noexcept { return is_done() && status() == IBV_WC_SUCCESS; }

 private:
  explicit constexpr ExecResult(std::uint64_t word) noexcept : word_(word) {}
  std::uint64_t word_;
};

/// Looks for a target without the queue pair: one that is stopped is waited for, and holds up nobody but those who look for it.
class TargetSearch {
 public:
  TargetSearch() = default;
  TargetSearch(const TargetSearch&) = delete;
  TargetSearch& operator=(const TargetSearch&) = delete;
  virtual ~TargetSearch() = default;
  /// May wait for the target to answer.
  virtual void run() noexcept = 0;
};

/// A search that one thread makes for another, which must not wait.
class LaterSearch {
 public:
  explicit LaterSearch(std::unique_ptr<TargetSearch> search) noexcept : search_(std::move(search)) {}

  /// Of the thread that looks.
  void run() noexcept {
    search_->run();
    is_done_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool is_done() const noexcept { return is_done_.load(std::memory_order_acquire); }
  /// Only once is_done().
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

  /// Carries one request out, whole, or says why not; a request that is not kDone had no effect.
  /// Called under the send queue's lock. Posts that were checked only: opcode, counts, queue pair state.
  [[nodiscard]] virtual ExecResult exec(const ibv_send_wr& wr) noexcept = 0;
  /// Whether the target is not found yet. Not where each request names one.
  [[nodiscard]] virtual bool lacks_target() const noexcept { return false; }
  /// The search for it. Only where lacks_target().
  [[nodiscard]] virtual std::unique_ptr<TargetSearch> search() const { return nullptr; }
  /// What such a search has found, if it is of use still.
  virtual void take_found(TargetSearch& /*search*/) noexcept {}
  /// Moves what a socket has room for, or has brought.
  virtual void advance() noexcept {}
  /// The target's min_rnr_timer code.
  [[nodiscard]] virtual std::uint32_t rnr_timer_code() const noexcept = 0;
};

}  // namespace rdmacomm::softdev
