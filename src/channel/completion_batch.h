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

/// Describes the completions in `taken` behind the first `count` of `out`, which has room for them. Adds the number of
/// reported ones to `count`.
///
/// report  bool(const ibv_wc&, Completion&): whether the completion is passed on; `noexcept`
template <typename Report>
RDMACOMM_HOT_INLINE void report_all(std::span<const ibv_wc> taken, std::span<Completion> out, std::size_t& count,
                                    const Report& report) noexcept {
  std::size_t reported =
      count;  // a local variable: for `count` the compiler would have to store it after each completion
  for (const ibv_wc& wc : taken) {
    if (report(wc, out[reported])) ++reported;
  }
  count = reported;
}

/// The same with the completions in `cq`, as long as `out` has room. kCompletionFailed: `cq` cannot be polled.
template <typename Report>
[[nodiscard]] Errc report_more(ibv_cq* cq, std::span<Completion> out, std::size_t& count,
                               const Report& report) noexcept {
  ibv_wc wcs[kCompletionBatch];  // the device fills only the first `got`
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
