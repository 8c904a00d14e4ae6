#include "session/completion_thread.h"

#include <algorithm>
#include <array>

#include "base/start_thread.h"
#include "rdmacomm/base/log.h"

namespace rdmacomm {
namespace {

void call_hook(SessionHooks& hooks, EndPoint& endpoint, const Completion& completion) {
  if (!completion.ok()) return hooks.on_failed(endpoint, completion);
  switch (completion.operation) {
    case Operation::kSend: return hooks.on_send_done(endpoint, completion);
    case Operation::kRecv: return hooks.on_recv_done(endpoint, completion);
    case Operation::kWrite:
    case Operation::kWriteImm: return hooks.on_write_done(endpoint, completion);
    case Operation::kRead: return hooks.on_read_done(endpoint, completion);
    case Operation::kFetchAdd:
    case Operation::kCompareSwap: return hooks.on_atomic_done(endpoint, completion);
    case Operation::kRecvWriteImm: return hooks.on_recv_write_imm_done(endpoint, completion);
  }
}

}  // namespace

CompletionThread::CompletionThread(std::shared_ptr<CompletionGroup> group, SessionHooks& hooks, Owner& owner,
                                   InsideThreads& inside)
    : group_(std::move(group)), hooks_(hooks), owner_(owner), inside_(inside) {}

CompletionThread::~CompletionThread() {
  finish();
  if (thread_.joinable()) thread_.join();
}

Status CompletionThread::start() {
  // A thread that begins before `thread_` is assigned must not look at it: it does not.
  return start_thread(thread_, [this] { run(); });
}

void CompletionThread::add(std::shared_ptr<EndPoint> endpoint) {
  endpoint->begin_serving(thread_.get_id());
  {
    const std::lock_guard lock(mutex_);
    newcomers_.push_back(std::move(endpoint));
    changed_.notify_all();
  }
  group_->notify();
}

void CompletionThread::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    changed_.notify_all();
  }
  group_->notify();
}

void CompletionThread::run() {
  const InsideThreads::Guard inside(inside_);
  std::array<Completion, 32> batch;
  while (!all_done()) {
    if (group_->take_notice()) {
      adopt_newcomers();
      tending_ = true;
    }
    std::size_t count = 0;
    // The wake-up that came with a notice is used up: who slept now would sleep on what the notice was about.
    const std::error_code failed =
        tending_ ? group_->poll(batch, count) : group_->wait_step(batch, count, next_deadline());
    dispatch(std::span(batch).first(count));
    if (failed) give_up();
    // Only once the queue is empty: what an endpoint did before it ended is delivered first.
    if (count == 0 && (tending_ || draining())) tend_members();
    if (count > 0 && draining()) tending_ = true;  // these may have been the last that were outstanding
  }
  ended_.store(true, std::memory_order_release);
  owner_.completion_thread_ended();
}

/// The queue cannot be polled any more: the endpoints on it, and those that come yet, are over.
void CompletionThread::give_up() {
  for (Member& member : members_) {
    member.endpoint->stop();
    member.draining = Deadline::after({});
  }
  tending_ = true;
  if (!members_.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finishing_ || !newcomers_.empty(); });
}

bool CompletionThread::all_done() {
  if (!members_.empty()) return false;
  const std::lock_guard lock(mutex_);
  return finishing_ && newcomers_.empty();
}

void CompletionThread::adopt_newcomers() {
  std::vector<std::shared_ptr<EndPoint>> newcomers;
  {
    const std::lock_guard lock(mutex_);
    newcomers.swap(newcomers_);
  }
  for (std::shared_ptr<EndPoint>& endpoint : newcomers) {
    Member& member = members_.emplace_back(Member{.endpoint = std::move(endpoint)});
    for (const ChannelConfig& each : member.endpoint->config().channels) {
      by_channel_[member.endpoint->channel(each.name)] = &member;
    }
  }
}

void CompletionThread::dispatch(std::span<const Completion> completions) {
  for (const Completion& completion : completions) {
    auto owner = by_channel_.find(completion.channel);
    if (owner == by_channel_.end()) {
      // Added since the last look: it was, before it could have completions.
      adopt_newcomers();
      owner = by_channel_.find(completion.channel);
      if (owner == by_channel_.end()) continue;
    }
    Member& member = *owner->second;
    announce(member);
    if (member.announced) {
      call_hook(hooks_, *member.endpoint, completion);
    } else {
      member.held.push_back(completion);  // no more than its queues are deep
    }
  }
}

/// on_established, and what came before it, once the endpoint is established.
void CompletionThread::announce(Member& member) {
  if (member.announced || !member.endpoint->was_established()) return;
  member.announced = true;
  hooks_.on_established(*member.endpoint);
  for (const Completion& completion : member.held) call_hook(hooks_, *member.endpoint, completion);
  member.held = {};
}

void CompletionThread::tend_members() {
  tending_ = false;
  for (Member& member : members_) {
    announce(member);
    if (!member.draining && !member.endpoint->alive() && !member.endpoint->setting_up()) begin_end(member);
    if (member.draining && (member.endpoint->drained() || member.draining->passed())) end_member(member);
  }
  members_.remove_if([](const Member& member) { return member.endpoint == nullptr; });
}

void CompletionThread::begin_end(Member& member) {
  member.endpoint->stop();
  member.draining = Deadline::after(EndPoint::kDrainTime);
  const Status begun = member.endpoint->begin_drain();
  tending_ = true;  // nothing need come any more that would wake a sleeper
  if (begun) return;
  RDMACOMM_LOG(ERROR) << "ending the endpoint to " << member.endpoint->peer() << ": " << begun.message();
  member.draining = Deadline::after({});
}

void CompletionThread::end_member(Member& member) {
  const std::shared_ptr<EndPoint> endpoint = std::move(member.endpoint);
  member.endpoint = nullptr;
  if (!endpoint->drained()) {
    RDMACOMM_LOG(ERROR) << "the device did not hand out all completions of the endpoint to " << endpoint->peer();
  }
  std::erase_if(by_channel_, [&](const auto& entry) { return entry.second == &member; });
  if (member.announced) {
    hooks_.on_disconnected(*endpoint, endpoint->ended_in_order() ? Status() : endpoint->status());
  }
  endpoint->end_serving();
  owner_.endpoint_ended(*endpoint);
}

bool CompletionThread::draining() const {
  return std::ranges::any_of(members_, [](const Member& member) { return member.draining.has_value(); });
}

Deadline CompletionThread::next_deadline() const {
  Deadline next = Deadline::never();
  for (const Member& member : members_) {
    if (member.draining) next = next.sooner(*member.draining);
  }
  return next;
}

}  // namespace rdmacomm
