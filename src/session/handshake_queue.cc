#include "session/handshake_queue.h"

#include <algorithm>
#include <string>
#include <utility>

namespace rdmacomm {
namespace {

template <typename Map>
int count_in(const Map& counts, const SourceNetwork& source) {
  const auto found = counts.find(source);
  return found == counts.end() ? 0 : found->second;
}

template <typename Map>
void take_one(Map& counts, const SourceNetwork& source) {
  const auto found = counts.find(source);
  if (found != counts.end() && --found->second == 0) counts.erase(found);
}

}  // namespace

HandshakeQueue::HandshakeQueue(const Bounds& bounds, Random random) : bounds_(bounds), random_(std::move(random)) {}

void HandshakeQueue::arrive(Id id, const SourceNetwork& source) {
  std::list<Waiting> arrival{{.id = id, .source = source}};
  ++waiting_of_[source];
  waiting_.splice(waiting_.end(), arrival);
}

void HandshakeQueue::finished(Id id) {
  const auto found = std::ranges::find(started_, id, &Started::id);
  if (found == started_.end()) return;
  take_one(places_of_, found->source);
  if (found->dropped) take_one(dropped_of_, found->source);
  started_.erase(found);
}

int HandshakeQueue::places_of(const SourceNetwork& source) const {
  return count_in(places_of_, source);
}

int HandshakeQueue::kept_places_of(const SourceNetwork& source) const {
  return places_of(source) - count_in(dropped_of_, source);
}

/// The oldest connection of the waiting source with the fewest places. end(): each waiting source has its maximum.
std::list<HandshakeQueue::Waiting>::const_iterator HandshakeQueue::next_waiting() const {
  auto next = waiting_.end();
  int fewest = bounds_.per_source;
  for (auto each = waiting_.begin(); each != waiting_.end(); ++each) {
    const int places = places_of(each->source);
    if (places >= fewest) continue;
    next = each;
    fewest = places;
    if (fewest == 0) break;
  }
  return next;
}

/// Chooses a handshake to drop for `for_source`: it has lasted for `patience`, and its source has more places than
/// `for_source`. Among these, the source with the most places.
std::optional<HandshakeQueue::Id> HandshakeQueue::late_one(const SourceNetwork& for_source, Clock::time_point now) {
  int most = kept_places_of(for_source) + 1;
  std::vector<Started*> candidates;
  for (Started& each : started_) {
    if (each.dropped || now - each.since < bounds_.patience) continue;
    const int places = kept_places_of(each.source);
    if (places < most) continue;
    if (places > most) candidates.clear();
    most = places;
    candidates.push_back(&each);
  }
  if (candidates.empty()) return {};
  Started& chosen = *candidates[random_(candidates.size())];
  ++dropped_of_[chosen.source];
  chosen.dropped = true;
  return chosen.id;
}

void HandshakeQueue::decide(Clock::time_point now, Decision& decision) {
  // All memory for a step is reserved before the step changes anything.
  decision.start.reserve(decision.start.size() + waiting_.size());
  decision.drop.reserve(decision.drop.size() + started_.size() + waiting_.size());
  while (started_.size() < static_cast<std::size_t>(bounds_.slots)) {
    const auto next = next_waiting();
    if (next == waiting_.end()) break;
    std::list<Started> one{{.id = next->id, .source = next->source, .since = now}};
    ++places_of_[next->source];
    started_.splice(started_.end(), one);
    take_one(waiting_of_, next->source);
    decision.start.push_back(next->id);
    waiting_.erase(next);
  }
  while (const auto source = next_in_need()) {
    const auto late = late_one(*source, now);
    if (!late) break;
    decision.drop.push_back(*late);
  }
  while (waiting_.size() > static_cast<std::size_t>(bounds_.waiting)) decision.drop.push_back(*shed());
}

/// A source that waits, may have more places, and for which no handshake was told to end yet. At most one place for
/// each source at a time; the source with the fewest places first.
std::optional<SourceNetwork> HandshakeQueue::next_in_need() const {
  std::vector<std::pair<int, SourceNetwork>> sources;
  for (const auto& [source, count] : waiting_of_) {
    if (places_of(source) < bounds_.per_source) sources.emplace_back(kept_places_of(source), source);
  }
  std::ranges::sort(sources);
  std::size_t ending = 0;
  for (const auto& [source, count] : dropped_of_) ending += static_cast<std::size_t>(count);
  if (ending >= sources.size()) return {};
  return sources[ending].second;
}

Deadline HandshakeQueue::next_look() const {
  Deadline look = Deadline::never();
  const auto source = next_in_need();
  if (!source) return look;
  const int places = kept_places_of(*source);
  for (const Started& each : started_) {
    if (each.dropped || kept_places_of(each.source) <= places) continue;
    look = look.sooner(Deadline::at(each.since + bounds_.patience));
  }
  return look;
}

bool HandshakeQueue::full() const {
  const bool each_of_another = waiting_.size() > 1 && waiting_of_.size() == waiting_.size();
  return each_of_another && waiting_.size() >= static_cast<std::size_t>(bounds_.waiting);
}

std::optional<HandshakeQueue::Id> HandshakeQueue::shed() {
  if (waiting_.empty()) return {};
  int most = 0;
  for (const auto& [source, count] : waiting_of_) most = std::max(most, count);
  std::vector<std::list<Waiting>::const_iterator> candidates;
  for (auto each = waiting_.cbegin(); each != waiting_.cend(); ++each) {
    if (waiting_of_.at(each->source) == most) candidates.push_back(each);
  }
  const auto chosen = candidates[random_(candidates.size())];
  const Id id = chosen->id;
  take_one(waiting_of_, chosen->source);
  waiting_.erase(chosen);
  return id;
}

}  // namespace rdmacomm
