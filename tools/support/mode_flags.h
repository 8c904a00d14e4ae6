// mode_flags.h - the flags that select how a program waits for completions, and on which thread.
#pragma once

#include <cstdint>

#include "rdmacomm/config.h"
#include "rdmacomm/result.h"
#include "support/program.h"

namespace rdmacomm::programs {

/// The values of the mode flags, checked.
struct ModeFlags {
  PollingMode polling = PollingMode::kBusyPoll;
  ThreadMode threads = ThreadMode::kApplication;
  int shared_queues = 1;

  /// Call it in lazy_config_hca().
  void apply(HcaConfig& hca) const;
};

/// Whether the thread that waits for completions can poll for them itself: --threads=none.
/// kAlways: the program supports only this, and has neither --threads nor --shards.
enum class OwnThread : std::uint8_t { kPossible, kNever, kAlways };

/// kInvalidArgument: an unknown mode, a number outside its range, or a flag that has no meaning in this program or
/// mode; the context names the flag, its value, and the allowed values.
[[nodiscard]] Result<ModeFlags> read_mode_flags(OwnThread own = OwnThread::kPossible);
/// The flags as a group for --help.
[[nodiscard]] Help::Group mode_help(OwnThread own = OwnThread::kPossible);

}  // namespace rdmacomm::programs
