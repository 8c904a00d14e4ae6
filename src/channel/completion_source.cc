#include "channel/completion_source.h"

#include <algorithm>

#include "base/out_of_memory.h"
#include "channel/channel_core.h"
#include "channel/operations.h"

namespace rdmacomm {

Status CompletionSource::keep_next(Deadline deadline) {
  // Reserve room first: a completion that is taken without room for it would be lost.
  if (Status room = or_out_of_memory([&] {
        if (kept_.size() == kept_.capacity()) kept_.reserve(std::max<std::size_t>(16, 2 * kept_.size()));
        return Status();
      });
      !room) {
    return room;
  }
  const auto next = take_next(deadline);
  if (!next) return next.error();
  const bool is_recv = is_receive(next->operation);
  // It was taken alone, so its request is the newest completed one in its queue.
  kept_.push_back({*next, is_recv, core_of(*next->channel).newest_completed(is_recv)});
  if (kept_.size() == 1) note_kept(true);
  return {};
}

std::optional<Completion> CompletionSource::take_kept(const ChannelCore& channel, bool is_recv,
                                                      std::uint32_t position) {
  const auto found = std::ranges::find_if(kept_, [&](const Kept& each) {
    return each.completion.channel == &channel && each.is_recv == is_recv && each.position == position;
  });
  if (found == kept_.end()) return {};
  const Completion completion = found->completion;
  forget(static_cast<std::size_t>(found - kept_.begin()), 1);
  return completion;
}

std::span<Completion> CompletionSource::take_kept(std::span<Completion> out) noexcept {
  const std::size_t count = std::min(out.size(), kept_.size());
  for (std::size_t i = 0; i < count; ++i) out[i] = kept_[i].completion;
  forget(0, count);
  return out.first(count);
}

void CompletionSource::forget(std::size_t first, std::size_t count) noexcept {
  if (count == 0) return;
  const auto begin = kept_.begin() + static_cast<std::ptrdiff_t>(first);
  kept_.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
  if (kept_.empty()) note_kept(false);
}

}  // namespace rdmacomm
