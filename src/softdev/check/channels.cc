#include "softdev/check/channels.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "softdev/check/locked.h"
#include "softdev/check/next.h"
#include "softdev/check/report.h"
#include "softdev/check/tables.h"
#include "verbs/event_element.h"

namespace rdmacomm::softdev::check {
namespace {

/// A device raises the event after it has written the completion. On a busy machine, its thread may be stopped between.
constexpr int kGraceMilliseconds = 1000;

bool has_event(const ibv_comp_channel* channel, int milliseconds) {
  const int error = errno;
  RDMACOMM_BEHIND(poll);
  pollfd readable{channel->fd, POLLIN, 0};
  const bool found = behind(&readable, 1, milliseconds) != 0;  // an error means: cannot tell
  errno = error;
  return found;
}

std::vector<std::shared_ptr<Object>> queues_of(const ibv_comp_channel* channel) {
  std::vector<std::shared_ptr<Object>> found;
  for (const auto& [address, object] : objects().all()) {
    if (object->kind == ObjectKind::kCq && static_cast<const Cq&>(*object).verbs->channel == channel)
      found.push_back(object);
  }
  return found;
}

/// Requests in flight that raise an event if the queue is armed.
std::uint64_t expected(const Cq& cq) {
  std::uint64_t sum = cq.outstanding;
  for (const auto& [address, object] : objects().all()) {
    if (object->kind != ObjectKind::kSrq) continue;
    const auto& srq = static_cast<const Srq&>(*object);
    if (srq.queues.contains(&cq)) sum += srq.receives.requests.size();
  }
  return sum;
}

/// Returns true if it is too early to tell.
bool check_unarmed(const ibv_comp_channel* channel, const std::vector<std::shared_ptr<Object>>& queues, bool is_late,
                   StackId where) {
  const Cq* waiting = nullptr;
  bool is_of_others = false;
  for (const auto& object : queues) {
    const auto& cq = static_cast<const Cq&>(*object);
    if (cq.is_armed) return false;
    if (cq.has_several_threads || cq.thread != std::this_thread::get_id()) is_of_others = true;
    if (expected(cq) != 0) waiting = &cq;
  }
  if (waiting == nullptr || has_event(channel, 0)) return false;
  if (is_of_others && !is_late) return true;
  const Object* const made = objects().find(channel);
  Report asleep{Rule::kSleepUnarmed,
                waiting->was_armed
                    ? "the program sleeps on a channel, and no queue of it was armed again since its event"
                    : "the program sleeps on a channel, and no queue of it is armed",
                {}};
  asleep.line("sleeps", "at", where).line("completion queue", waiting->describe() + ", created at", waiting->created);
  if (made != nullptr) asleep.line("completion channel", "created at", made->created);
  report(asleep);
  return false;
}

/// True if a completion waits in the queue that raised no event, because it arrived before the queue was armed.
bool has_missed(Cq& cq, const ibv_comp_channel* channel) {
  const std::scoped_lock polling(cq.polling);
  auto* const behind = table_of(cq.context, &Context::ops).poll_cq;
  ibv_wc wc{};
  if (cq.peeked.empty()) {
    if (behind(cq.verbs, 1, &wc) != 1) return false;
    const Locked locked;
    cq.peeked.push_back(wc);
  }
  // The device may be about to raise the event of a completion that has just arrived.
  return !has_event(channel, kGraceMilliseconds);
}

void check_unpolled(const ibv_comp_channel* channel, const std::vector<std::shared_ptr<Object>>& queues,
                    StackId where) {
  for (const auto& object : queues) {
    auto& cq = static_cast<Cq&>(*object);
    {
      const Locked locked;
      if (!cq.is_armed || cq.is_solicited || cq.is_empty_since_arm || cq.is_extended) continue;
    }
    if (has_event(channel, 0) || !has_missed(cq, channel)) continue;
    const Locked locked;
    Report missed{Rule::kSleepWithoutPoll,
                  "the program sleeps although a completion waits, which arrived before the queue was armed",
                  {}};
    missed.line("sleeps", "at", where).line("completion queue", cq.describe() + ", created at", cq.created);
    report(missed);
  }
}

}  // namespace

void note_thread(Cq& cq) {
  const auto own = std::this_thread::get_id();
  if (cq.thread == std::thread::id()) cq.thread = own;
  if (cq.thread != own) cq.has_several_threads = true;
}

bool check_sleep(ibv_comp_channel* channel, bool is_late) {
  const Inside inside;
  const StackId where = capture_stack();
  std::vector<std::shared_ptr<Object>> queues;
  bool is_early = false;
  {
    const Locked locked;
    queues = queues_of(channel);
    if (queues.empty()) return false;
    is_early = check_unarmed(channel, queues, is_late, where);
  }
  check_unpolled(channel, queues, where);
  return is_early;
}

namespace {

/// The queue or queue pair of an event; nullptr: it needs no acknowledgement, or belongs to nothing that is known.
Object* object_of(const ibv_async_event& event) {
  switch (verbs::element_of(event.event_type)) {
    case verbs::EventElement::kCq: return objects().find(event.element.cq);
    case verbs::EventElement::kQp: return objects().find(event.element.qp);
    case verbs::EventElement::kSrq: return objects().find(event.element.srq);
    default: return nullptr;
  }
}

/// The device has moved the queue pairs to ERR for which `is_meant` is true.
template <typename IsMeant>
void fail_queue_pairs(const IsMeant& is_meant) {
  for (const auto& [address, object] : objects().all()) {
    auto* const qp = dynamic_cast<Qp*>(object.get());
    if (qp != nullptr && qp->state != IBV_QPS_RESET && is_meant(*qp)) qp->state = IBV_QPS_ERR;
  }
}

void follow_failure(const ibv_async_event& event, ibv_context* context) {
  switch (event.event_type) {
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR: return fail_queue_pairs([&](const Qp& qp) { return qp.verbs == event.element.qp; });
    case IBV_EVENT_CQ_ERR:
      if (const Cq* const cq = objects().find_as<Cq>(event.element.cq); cq != nullptr) note_overrun(*cq);
      return;
    case IBV_EVENT_DEVICE_FATAL: return fail_queue_pairs([&](const Qp& qp) { return qp.context == context; });
    default: return;
  }
}

std::set<const void*>& acknowledged() {
  static auto& all = *new std::set<const void*>;  // never destroyed: programs use verbs until they end
  return all;
}

}  // namespace

void note_acknowledged(const void* address) {
  acknowledged().insert(address);
}

bool was_acknowledged(const void* address) {
  return acknowledged().contains(address);
}

bool was_acknowledged(const ibv_async_event& event) {
  // The members of the union are pointers, or the number of a port.
  if (verbs::element_of(event.event_type) == verbs::EventElement::kOther) return false;
  return object_of(event) == nullptr && was_acknowledged(event.element.cq);
}

void note_overrun(const Cq& cq) {
  fail_queue_pairs([&cq](const Qp& qp) { return qp.send_cq == &cq || qp.recv_cq == &cq; });
}

void note_async_event(const ibv_async_event& event, ibv_context* context, StackId where) {
  follow_failure(event, context);
  Object* const object = object_of(event);
  if (object == nullptr) return;
  object->unacknowledged.push_back(event);
  object->last_event = where;
}

void forget_async_event(const ibv_async_event& event) {
  Object* const object = object_of(event);
  if (object == nullptr) return;
  const auto same = std::find_if(object->unacknowledged.begin(), object->unacknowledged.end(),
                                 [&](const ibv_async_event& each) { return each.event_type == event.event_type; });
  if (same != object->unacknowledged.end()) object->unacknowledged.erase(same);
}

std::vector<ibv_async_event> take_async_events(Object& object) {
  if (object.unacknowledged.empty()) return {};
  Report waiting{
      Rule::kEventsUnacknowledged,
      std::to_string(object.unacknowledged.size()) + " asynchronous events were not acknowledged: " + object.describe(),
      {}};
  waiting.line("last event", "taken at", object.last_event).line("object", "created at", object.created);
  report(waiting);
  return std::exchange(object.unacknowledged, {});
}

std::uint64_t check_events(const Object& object, const EventCounts& counts) {
  if (counts.waiting() == 0) return 0;
  Report waiting{Rule::kEventsUnacknowledged,
                 std::to_string(counts.waiting()) + " of " + std::to_string(counts.got) +
                     " events were not acknowledged: " + object.describe(),
                 {}};
  waiting.line("last event", "taken at", counts.last_got).line("object", "created at", object.created);
  report(waiting);
  return counts.waiting();
}

}  // namespace rdmacomm::softdev::check
