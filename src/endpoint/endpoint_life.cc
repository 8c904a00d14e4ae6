#include "endpoint/endpoint_life.h"

#include <algorithm>
#include <utility>

#include "base/wait.h"

namespace rdmacomm {

/// Keeps the marks. One store, so that no thread that sees the state established misses the mark.
bool EndPointLife::move_locked(State next) noexcept {
  std::uint8_t now = load();
  if (static_cast<State>(now & kStateBits) >= next) return false;
  const std::uint8_t marks = next == State::kEstablished ? kWasEstablished : 0;
  std::uint8_t moved = 0;
  do {
    moved = static_cast<std::uint8_t>((now & ~kStateBits) | marks | static_cast<std::uint8_t>(next));
  } while (!marks_and_state_.compare_exchange_weak(now, moved, std::memory_order_acq_rel));
  return true;
}

Status EndPointLife::why() const {
  const std::lock_guard lock(mutex_);
  if (why_) return *why_;
  return {};
}

Status EndPointLife::outcome() const {
  const std::lock_guard lock(mutex_);
  if (why_ && !in_order_) return *why_;
  return {};
}

bool EndPointLife::establish() noexcept {
  const std::lock_guard lock(mutex_);
  return move_locked(State::kEstablished);
}

bool EndPointLife::end(Error why, bool in_order) {
  const std::lock_guard lock(mutex_);
  if (!move_locked(State::kEnded)) return false;
  why_ = std::move(why);
  in_order_ = in_order;
  return true;
}

bool EndPointLife::stop(Error why) {
  const std::lock_guard lock(mutex_);
  if (!move_locked(State::kStopped)) return false;
  if (why_) return true;
  why_ = std::move(why);
  in_order_ = true;
  return true;
}

void EndPointLife::begin_serving(std::thread::id server) {
  const std::lock_guard lock(mutex_);
  servers_.push_back(server);
}

void EndPointLife::end_serving(std::thread::id server) {
  const std::lock_guard lock(mutex_);
  servers_.erase(std::ranges::find(servers_, server));
  changed_.notify_all();
}

std::size_t EndPointLife::servers() const {
  const std::lock_guard lock(mutex_);
  return servers_.size();
}

bool EndPointLife::served_by_this_thread() const {
  const std::lock_guard lock(mutex_);
  return std::ranges::find(servers_, std::this_thread::get_id()) != servers_.end();
}

EndPointLife::Finish EndPointLife::begin_finish(Deadline deadline) {
  std::unique_lock lock(mutex_);
  if (!wait(changed_, lock, deadline, [this] { return !finishing_; })) return Finish::kOtherThread;
  finishing_ = true;  // set before the second wait, so that only one thread waits for the servers and then drains
  const bool served_to_the_end = wait(changed_, lock, deadline, [this] { return servers_.empty(); });
  if (served_to_the_end && state() != State::kGone) return Finish::kMine;
  finishing_ = false;
  changed_.notify_all();
  return served_to_the_end ? Finish::kGone : Finish::kServed;
}

void EndPointLife::end_finish(bool gone) {
  const std::lock_guard lock(mutex_);
  finishing_ = false;
  if (gone) move_locked(State::kGone);
  changed_.notify_all();
}

void EndPointLife::discard() noexcept {
  const std::lock_guard lock(mutex_);
  move_locked(State::kGone);
}

}  // namespace rdmacomm
