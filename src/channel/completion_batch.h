// completion_batch.h - taking completions from a device in batches.
// Layer: channel.
#pragma once

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstddef>
#include <span>

#include "base/hot_inline.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/errc.h"

namespace rdmacomm {

inline constexpr std::size_t kCompletionBatch = 16;  // taken from the device at a time: 768 bytes of stack

[[nodiscard]] constexpr int batch_for(std::size_t room) noexcept {
  return static_cast<int>(std::min(room, kCompletionBatch));
}

/// Describes `taken` behind the first `count` of `out`, which has room for them, and adds to `count` how many are
/// reported.
///
/// report  bool(const ibv_wc&, Completion&): whether somebody is to hear of it; `noexcept`
template <typename Report>
RDMACOMM_HOT_INLINE void report_all(std::span<const ibv_wc> taken, std::span<Completion> out, std::size_t& count,
                                    const Report& report) noexcept {
  std::size_t reported = count;  // not the caller's: the compiler would have to store it after each completion
  for (const ibv_wc& wc : taken) {
    if (report(wc, out[reported])) ++reported;
  }
  count = reported;
}

/// The same with what `cq` has, as far as there is room. kCompletionFailed: it cannot be polled.
template <typename Report>
[[nodiscard]] Errc report_more(ibv_cq* cq, std::span<Completion> out, std::size_t& count,
                               const Report& report) noexcept {
  ibv_wc wcs[kCompletionBatch];  // written by the device as far as used
  while (count < out.size()) {
    const int asked = batch_for(out.size() - count);
    const int got = ibv_poll_cq(cq, asked, wcs);
    if (got < 0) return Errc::kCompletionFailed;
    report_all({wcs, static_cast<std::size_t>(got)}, out, count, report);
    if (got < asked) break;
  }
  return Errc::kOk;
}

}  // namespace rdmacomm
