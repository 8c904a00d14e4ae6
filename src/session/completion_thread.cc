#include "session/completion_thread.h"

#include <algorithm>
#include <array>

#include "base/logging.h"
#include "base/start_thread.h"
#include "rdmacomm/channel.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBusyFor = 256;  // completions
constexpr std::size_t kBatch = 32;     // completions taken at a time

}  // namespace

CompletionThread::CompletionThread(std::shared_ptr<CompletionQueue> queue, Owner& owner, InsideThreads& inside)
    : queue_(std::move(queue)), owner_(owner), inside_(inside) {}

CompletionThread::~CompletionThread() {
  finish();
  if (thread_.joinable()) thread_.join();
}

Status CompletionThread::start(const ThreadOptions& options, std::size_t index) {
  constexpr std::size_t kNumbers = 1000;  // a name has room for three digits
  const std::string name = options.name + "-" + std::to_string(index % kNumbers);
  // The new thread may run before `thread_` is assigned. This is safe, because it does not use `thread_`.
  Status started = start_thread(thread_, name, [this] { run(); });
  if (!started || options.cpus.empty()) return started;
  cpu_ = CpuChoice(options.cpus);
  return pin_thread(thread_, cpu_.cpu());
}

void CompletionThread::add(std::shared_ptr<EndPointCore> endpoint, const Session& session) {
  {
    const std::lock_guard lock(mutex_);
    added_.reserve(added_.size() + 1);  // first, because it may fail, and begin_serving() would have to be undone
    endpoint->begin_serving(thread_.get_id());
    added_.emplace_back(endpoint, session);
    changed_.notify_all();
  }
  queue_->notify();
}

void CompletionThread::finish() {
  {
    const std::lock_guard lock(mutex_);
    finishing_ = true;
    changed_.notify_all();
  }
  queue_->notify();
}

void CompletionThread::end() {
  {
    const std::lock_guard lock(mutex_);
    ending_ = true;
  }
  finish();
}

void CompletionThread::run() {
  const InsideThreads::Guard inside(inside_);
  std::array<Completion, kBatch> batch;
  while (!all_done()) {
    if (queue_->take_notice()) {
      take_added();
      stop_members();
      checking_ = true;
    }
    // take_notice() has consumed the wake-up of the notice. A sleep now could miss the reason for it, so only poll.
    const Polled polled = checking_ ? queue_->poll(batch) : queue_->wait_step(batch, next_deadline());
    dispatch({polled.begin(), polled.end()});
    if (!polled) give_up();
    // Ends are handled when the queue is empty, so that completions from before an end are delivered first. If other
    // endpoints keep the queue busy, it never gets empty: then ends are handled after kBusyFor completions, and the
    // remaining completions of the endpoint arrive while it drains.
    unchecked_ += polled.size();
    const bool due = polled.empty() || unchecked_ >= kBusyFor;
    if (due && (checking_ || draining_)) check_members(polled.empty());
    if (!polled.empty() && draining_) checking_ = true;  // these may have been the last outstanding ones
  }
  ended_.store(true, std::memory_order_release);
  owner_.completion_thread_ended();
}

/// The queue cannot be polled any more: ends all endpoints on it, also if they are added later.
void CompletionThread::give_up() {
  for (Member& member : members_) {
    member.endpoint->stop();
    drain(member, Deadline::after({}));
  }
  checking_ = true;
  if (!members_.empty()) return;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finishing_ || !added_.empty(); });
}

bool CompletionThread::all_done() {
  if (!members_.empty()) return false;
  const std::lock_guard lock(mutex_);
  return finishing_ && added_.empty();
}

void CompletionThread::take_added() {
  std::vector<Member> added;
  {
    const std::lock_guard lock(mutex_);
    added.swap(added_);
  }
  for (Member& member : added) {
    member.leads = member.endpoint->queue() == queue_;
    members_.push_back(std::move(member));
  }
}

/// Stops all endpoints if end() was called. Nothing else stops the endpoints of other sessions.
void CompletionThread::stop_members() {
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) return;
  }
  for (const Member& member : members_) member.endpoint->stop();
}

/// The member that owns the channel; nullptr: none any more. At the first completion of a channel it asks all
/// endpoints.
CompletionThread::Member* CompletionThread::member_of(RDMAChannel& channel) {
  ChannelCore& core = core_of(channel);
  if (core.server() != nullptr) return static_cast<Member*>(core.server());
  take_added();  // it was added before its first completion, but perhaps after the last take_added()
  for (Member& member : members_) {
    if (!member.endpoint->owns(&channel, *queue_)) continue;
    core.set_server(&member);
    return &member;
  }
  return nullptr;
}

void CompletionThread::dispatch(std::span<const Completion> completions) {
  std::array<Completion, kBatch> served;
  std::size_t count = 0;
  for (const Completion& completion : completions) {
    if (Member* const member = member_of(*completion.channel)) {
      announce(*member);
      if (!member->announced) {
        member->held.push_back(completion);  // at most the depths of its queues
        continue;
      }
      member->session.hooks.on_completion(member->handle, completion);
    }
    // Also receives whose completions were not passed to a hook.
    if (completion.channel->receive_pool()) served[count++] = completion;
  }
  give_back(std::span(served).first(count));
}

/// Gives receives of pools back after their hooks, unless the hooks kept them.
void CompletionThread::give_back(std::span<const Completion> completions) {
  if (completions.empty()) return;
  if (const Outcome given = ReceivePool::give_back_unkept(completions); !given) {
    RDMACOMM_LOG(ERROR) << "cannot return receives to their pool, because the device refuses them: " << given.message();
  }
}

/// Calls on_established, and delivers the earlier completions, when the endpoint is established.
void CompletionThread::announce(Member& member) {
  if (member.announced || !member.endpoint->was_established()) return;
  if (!member.leads && !member.endpoint->announced()) return;
  member.announced = true;
  if (member.leads) {
    member.session.hooks.on_established(member.handle);
    member.endpoint->mark_announced();
  }
  for (const Completion& completion : member.held) member.session.hooks.on_completion(member.handle, completion);
  give_back(member.held);
  member.held = {};
}

void CompletionThread::check_members(bool queue_is_empty) {
  checking_ = false;
  unchecked_ = 0;
  for (Member& member : members_) {
    announce(member);
    if (member.draining && queue_is_empty) member.endpoint->found_empty(*queue_);
    if (!member.draining && member.endpoint->over()) begin_end(member);
    if (ready_to_end(member)) end_member(member);
  }
  members_.remove_if([](const Member& member) { return member.endpoint == nullptr; });
  if (draining_)
    draining_ = std::ranges::any_of(members_, [](const Member& each) { return each.draining.has_value(); });
}

/// The thread that leads an endpoint starts first and ends last.
bool CompletionThread::ready_to_end(const Member& member) const {
  if (!member.draining) return false;
  if (!member.endpoint->drained(*queue_) && !member.draining->passed()) return false;
  if (member.leads) return member.endpoint->servers() == 1;
  return member.announced || !member.endpoint->was_established();
}

void CompletionThread::begin_end(Member& member) {
  member.endpoint->stop();
  drain(member, Deadline::after(EndPointCore::kDrainTime));
  const Status begun = member.endpoint->begin_drain(*queue_);
  checking_ = true;  // perhaps no further event arrives that would end a sleep
  if (begun) return;
  RDMACOMM_LOG(ERROR) << "ending the endpoint to " << member.endpoint->peer() << ": " << begun.message();
  drain(member, Deadline::after({}));
}

void CompletionThread::end_member(Member& member) {
  const std::shared_ptr<EndPointCore> endpoint = std::move(member.endpoint);
  member.endpoint = nullptr;
  member.handle = {};
  if (!endpoint->drained(*queue_)) {
    RDMACOMM_LOG(ERROR) << "the device did not deliver all completions of the endpoint to " << endpoint->peer();
  }
  give_back(member.held);
  if (member.announced && member.leads) {
    member.session.hooks.on_disconnected(endpoint, endpoint->outcome());
  }
  endpoint->end_serving(*queue_, std::this_thread::get_id());
  if (!member.leads) return endpoint->queue()->notify();
  member.session.owner.endpoint_ended(*endpoint);
}

void CompletionThread::drain(Member& member, Deadline until) {
  member.draining = until;
  draining_ = true;
}

Deadline CompletionThread::next_deadline() const {
  Deadline next = Deadline::never();
  if (!draining_) return next;  // fast path for each wait: does not look at all endpoints
  for (const Member& member : members_) {
    if (member.draining) next = next.sooner(*member.draining);
  }
  return next;
}

}  // namespace rdmacomm
