// rules.h - the rules of the verbs that the checker knows.
#pragma once

#include <string_view>

namespace rdmacomm::softdev::check {

/// One for each kind of report. docs/check.md explains each.
enum class Rule {
  kSendBufferChanged,
  kReceiveBufferChanged,
  kBufferTouched,
  kOverlap,
  kReceiveTwice,
  kSliceDeregistered,
  kSliceOutside,
  kRkeyDeregistered,
  kRemoteAccess,
  kDeregisteredInFlight,
  kRegisteredMemoryFreed,
  kMemoryFreedInFlight,
  kStackMemory,
  kSleepUnarmed,
  kSleepWithoutPoll,
  kEventsUnacknowledged,
  kQueueTooSmall,
  kInline,
  kRequestMemory,
  kWrIdReused,
  kWrIdFreed,
  kWrongState,
  kDestroyedInUse,
  kDestroyRefused,
  kLeak,
  kContextLeak,
};

struct RuleText {
  std::string_view name;  ///< as reports and suppressions have it
  std::string_view text;  ///< the rule, with its source
};

[[nodiscard]] const RuleText& text_of(Rule rule) noexcept;

/// True if a rule has this name.
[[nodiscard]] bool is_rule(std::string_view name) noexcept;

}  // namespace rdmacomm::softdev::check
