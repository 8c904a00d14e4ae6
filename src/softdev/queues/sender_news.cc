#include "softdev/queues/sender_news.h"

#include <algorithm>

#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {

bool SenderNews::Group::has_news() const noexcept {
  std::uint32_t differences = 0;
  for (std::size_t i = 0; i < kSize; ++i) differences |= now[i].load(std::memory_order_relaxed) ^ seen[i];
  return differences != 0;
}

void SenderNews::add(SoftQp& qp) {
  const auto is_free = [](const SoftQp* one) { return one == nullptr; };
  const auto group =
      std::ranges::find_if(groups_, [&](const auto& one) { return std::ranges::any_of(one->queue_pairs, is_free); });
  Group& there = group != groups_.end() ? **group : *groups_.emplace_back(std::make_unique<Group>());
  const auto place = std::ranges::find_if(there.queue_pairs, is_free) - there.queue_pairs.begin();
  const auto at = static_cast<std::size_t>(place);
  there.queue_pairs[at] = &qp;
  there.seen[at] = word(qp.sends_scanned(), false);
  qp.report_news_at(&there.now[at]);
}

void SenderNews::remove(SoftQp& qp) {
  for (const auto& group : groups_) {
    const auto place = std::ranges::find(group->queue_pairs, &qp);
    if (place == group->queue_pairs.end()) continue;
    const auto at = static_cast<std::size_t>(place - group->queue_pairs.begin());
    qp.report_news_at(nullptr);
    group->now[at].store(0, std::memory_order_relaxed);
    group->seen[at] = 0;
    group->queue_pairs[at] = nullptr;
  }
}

int SenderNews::poll(int count, ibv_wc* out) noexcept {
  const std::size_t begin = next_;
  const int found = poll_from(begin, places(), count, out);
  return found + poll_from(0, begin, count - found, out + found);
}

int SenderNews::poll_from(std::size_t begin, std::size_t end, int count, ibv_wc* out) noexcept {
  int found = 0;
  for (std::size_t place = begin; place < end && found < count;) {
    Group& group = *groups_[place / Group::kSize];
    const std::size_t group_end = std::min(end, (place / Group::kSize + 1) * Group::kSize);
    if (!group.has_news()) place = group_end;
    for (; place < group_end && found < count; ++place) {
      const std::size_t at = place % Group::kSize;
      if (group.now[at].load(std::memory_order_relaxed) == group.seen[at]) continue;
      SoftQp& qp = *group.queue_pairs[at];
      const int of_this = qp.poll_sends(count - found, out + found);
      group.seen[at] = word(qp.sends_scanned(), false);
      if (of_this > 0) next_ = place + 1 < places() ? place + 1 : 0;
      found += of_this;
    }
  }
  return found;
}

}  // namespace rdmacomm::softdev
