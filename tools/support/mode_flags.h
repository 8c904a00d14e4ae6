// mode_flags.h - the flags by which a program says how it waits for completions, and which thread does.
#pragma once

#include <cstdint>

#include "rdmacomm/config.h"
#include "rdmacomm/result.h"
#include "support/program.h"

namespace rdmacomm::programs {

/// What the mode flags say, checked.
struct ModeFlags {
  PollingMode polling = PollingMode::kBusyPoll;
  ThreadMode threads = ThreadMode::kApplication;
  int shared_queues = 1;

  /// To be called in lazy_config_hca().
  void apply(HcaConfig& hca) const;
};

/// Whether a program can take completions by the thread that waits for them: --threads=none.
/// kAlways: it has no other way, and neither --threads nor --shards.
enum class OwnThread : std::uint8_t { kPossible, kNever, kAlways };

/// kInvalidArgument: an unknown mode, a number outside its range, or a flag that says nothing to this program or in
/// this mode; the context names the flag, its value, and what is possible.
[[nodiscard]] Result<ModeFlags> read_mode_flags(OwnThread own = OwnThread::kPossible);
/// How the flags are listed in --help.
[[nodiscard]] Help::Group mode_help(OwnThread own = OwnThread::kPossible);

}  // namespace rdmacomm::programs
