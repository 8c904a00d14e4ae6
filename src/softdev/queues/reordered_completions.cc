#include "softdev/queues/reordered_completions.h"

#include <algorithm>

#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {

void ReorderedCompletions::remove(const SoftQp& qp) {
  std::erase_if(sources_, [&qp](const Source& one) { return one.queue_pair == &qp; });
}

bool ReorderedCompletions::has_any() const noexcept {
  return std::ranges::any_of(sources_, [](const Source& one) { return one.is_full; });
}

void ReorderedCompletions::fill(Source& source) noexcept {
  if (source.is_full) return;
  SoftQp& qp = *source.queue_pair;
  source.is_full = (source.is_receive ? qp.poll_receives(1, &source.next) : qp.poll_sends(1, &source.next)) == 1;
  if (source.is_full) source.hold = qp.next_hold(source.is_receive);
}

int ReorderedCompletions::poll(int count, ibv_wc* out) noexcept {
  int found = 0;
  while (found < count) {
    Source* chosen = nullptr;
    for (std::size_t i = 0; i < sources_.size(); ++i) {
      Source& one = sources_[(last_ + 1 + i) % sources_.size()];
      fill(one);
      if (one.is_full && (chosen == nullptr || one.hold < chosen->hold)) chosen = &one;
    }
    if (chosen == nullptr) return found;
    out[found++] = chosen->next;
    chosen->is_full = false;
    last_ = static_cast<std::size_t>(chosen - sources_.data());
    for (Source& one : sources_) {
      if (one.is_full && one.hold != 0) --one.hold;
    }
  }
  return found;
}

}  // namespace rdmacomm::softdev
