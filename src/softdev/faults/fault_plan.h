// fault_plan.h - the faults that a device shall have, and the language that describes them: docs/faults.md.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/result.h"

namespace rdmacomm::softdev {

enum class FaultAction : std::uint8_t {
  kFail,         ///< the request completes with an error
  kNotReady,     ///< the peer has no receive for some tries
  kDelay,        ///< the request begins later
  kSlow,         ///< the request takes longer
  kLose,         ///< the message does not arrive
  kReorder,      ///< completions of other queue pairs come first
  kLink,         ///< the port goes down
  kEvent,        ///< an asynchronous event
  kDeviceFatal,  ///< the device fails
  kOverrun,      ///< the completion queue overruns
  kDie,          ///< a process ends
  kFreeze,       ///< a process is stopped for a time
  kRefuse,       ///< a call fails
};

/// The calls that a plan can refuse.
enum class FaultCall : std::uint8_t {
  kOpenDevice,
  kAllocPd,
  kRegMr,
  kCreateCompChannel,
  kCreateCq,
  kCreateQp,
  kModifyQp,
  kCreateSrq,
  kCreateAh,
  kAllocMw,
  kQueryPort,
};

/// The kinds of queue pairs, as bits of a set.
enum FaultTransport : std::uint8_t { kOnRc = 1, kOnUc = 2, kOnUd = 4, kOnXrc = 8 };

/// The place of an operation in a set of operations. A request with another opcode than those of docs/faults.md is in
/// no set.
[[nodiscard]] std::uint32_t fault_opcode_bit(ibv_wr_opcode opcode) noexcept;

/// Says which of the requests, completions or calls of a rule have the fault. A value.
struct FaultWhen {
  enum class Kind : std::uint8_t { kAlways, kAt, kFrom, kEvery, kChance };
  static constexpr std::uint64_t kMaxCount = 1'000'000'000'000;
  static constexpr std::uint32_t kCertain = 1'000'000;

  Kind kind = Kind::kAlways;
  std::uint64_t first = 0;   ///< kAt: this one. kFrom: from this one. kEvery: each multiple of it. They count from 1.
  std::uint64_t last = 0;    ///< kFrom: to this one; 0: without an end
  std::uint32_t chance = 0;  ///< kChance: in millionths, 1 to kCertain

  bool operator==(const FaultWhen&) const = default;
};

/// The requests, calls and processes that a rule is about. A member with its default value selects all. A value.
struct FaultSelectors {
  static constexpr std::size_t kMaxName = 64;

  std::uint32_t queue_pair = 0;                      ///< the Nth that the process creates, from 1
  std::uint32_t opcodes = 0;                         ///< the bits of fault_opcode_bit()
  std::uint8_t transports = 0;                       ///< FaultTransport
  std::optional<std::array<std::uint8_t, 16>> peer;  ///< the GID of the target
  std::string device;
  std::string program;
  std::optional<std::uint32_t> rank;  ///< of the process in its job

  bool operator==(const FaultSelectors&) const = default;
};

/// One rule of a plan. A value.
struct FaultRule {
  static constexpr std::uint32_t kMaxTries = 1000;
  static constexpr std::uint32_t kMaxWindow = 1024;
  static constexpr std::chrono::microseconds kLongest = std::chrono::hours(1);

  FaultWhen when;
  FaultAction action = FaultAction::kFail;
  ibv_wc_status status = IBV_WC_SUCCESS;      ///< kFail
  ibv_event_type event = IBV_EVENT_PORT_ERR;  ///< kEvent
  FaultCall call = FaultCall::kOpenDevice;    ///< kRefuse
  int error = 0;                              ///< kRefuse: an errno value
  std::uint32_t number = 0;                   ///< kNotReady: tries, 1 to kMaxTries. kReorder: 1 to kMaxWindow
  std::chrono::microseconds shortest{};       ///< of a time, 1 us to kLongest
  std::chrono::microseconds longest{};        ///< the same, if the time is fixed
  bool at_peer = false;                       ///< kDie, kFreeze: the process of the target
  FaultSelectors selectors;

  /// True for actions that belong to a request.
  [[nodiscard]] bool is_for_requests() const noexcept {
    return action != FaultAction::kRefuse && action != FaultAction::kReorder;
  }
  bool operator==(const FaultRule&) const = default;
};

/// The faults of the devices of a process. A value.
struct FaultPlan {
  static constexpr std::size_t kMaxText = 16'384;
  static constexpr std::size_t kMaxRules = 64;

  std::optional<std::uint64_t> seed;
  std::vector<FaultRule> rules;

  bool operator==(const FaultPlan&) const = default;
};

/// Reads a plan. An empty text, or only comments: a plan without rules.
///
/// text  at most FaultPlan::kMaxText bytes of anything
/// Errors  std::errc::invalid_argument: the text of the error names the rule, the place, the word and the words that
///         may be there. One line.
[[nodiscard]] Result<FaultPlan> parse_fault_plan(std::string_view text);

/// The only text of its form: one line. parse_fault_plan() makes the same plan of it.
[[nodiscard]] std::string to_text(const FaultPlan& plan);
[[nodiscard]] std::string to_text(const FaultRule& rule);

}  // namespace rdmacomm::softdev
