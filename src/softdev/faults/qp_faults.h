// qp_faults.h - the faults of one queue pair: which rules apply to which request, and to which completion.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string_view>
#include <vector>

#include "softdev/faults/fault_run.h"

namespace rdmacomm::softdev {

/// A fault of the device, the completion queue or a process, which a request causes.
struct FaultEffect {
  const FaultRule* rule;           ///< of the plan
  std::chrono::microseconds time;  ///< its duration
};

/// The faults of one request. A value; that of a request without faults allocates nothing.
struct RequestFaults {
  std::optional<ibv_wc_status> failure;
  std::uint32_t not_ready_tries = 0;
  std::chrono::microseconds delay{};  ///< before the request begins
  std::chrono::microseconds slow{};   ///< more time that it takes
  bool is_lost = false;
  std::vector<FaultEffect> effects;

  [[nodiscard]] bool any() const noexcept {
    return failure || not_ready_tries != 0 || delay.count() != 0 || slow.count() != 0 || is_lost || !effects.empty();
  }
};

/// The decisions for one queue pair, in the order of its requests and completions.
/// Threads: one at a time for requests, and one at a time for each kind of completion.
class QpFaults {
 public:
  /// A queue pair, as rules select it.
  struct Facts {
    std::string_view device;
    FaultTransport transport = kOnRc;
    std::uint32_t ordinal = 0;  ///< FaultRun::next_queue_pair()
  };

  /// nullptr: no rule is about this queue pair.
  [[nodiscard]] static std::unique_ptr<QpFaults> create(std::shared_ptr<FaultRun> run, const Facts& facts);
  QpFaults(std::shared_ptr<FaultRun> run, const Facts& facts);

  /// Counts a request, and returns its faults.
  /// peer  the GID of the target; zero: unknown
  [[nodiscard]] RequestFaults next(ibv_wr_opcode opcode, const std::array<std::uint8_t, 16>& peer);
  /// Counts a completion of the send queue, or of the receive queue. Returns the number of completions of other queue
  /// pairs that come first.
  [[nodiscard]] std::uint32_t next_hold(bool is_receive);

 private:
  struct WatchedRule {
    std::size_t index;
    FaultTrigger trigger;
  };

  [[nodiscard]] bool counts(const FaultRule& rule, ibv_wr_opcode opcode,
                            const std::array<std::uint8_t, 16>& peer) const noexcept;
  static void add(const FaultRule& rule, FaultStream& stream, RequestFaults& faults);

  const std::shared_ptr<FaultRun> run_;
  const FaultTransport transport_;
  std::vector<WatchedRule> requests_;
  std::array<std::vector<WatchedRule>, 2> holds_;  // of sends, of receives
};

}  // namespace rdmacomm::softdev
