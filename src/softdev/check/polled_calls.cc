// The calls that poll and arm completion queues, in the place of those of the device.
#include <cerrno>
#include <utility>

#include "softdev/check/channels.h"
#include "softdev/check/completing.h"
#include "softdev/check/tables.h"

namespace rdmacomm::softdev::check {
namespace {

Cq* cq_of(const void* cq) {
  const Locked locked;
  Cq* const known = objects().find_as<Cq>(cq);
  if (known != nullptr) note_thread(*known);
  return known;
}

/// Completions that check_sleep() has polled. The caller holds the lock of the queue.
int take_peeked(Cq& cq, int count, ibv_wc* wc) {
  const Locked locked;
  int taken = 0;
  while (taken < count && !cq.peeked.empty()) {
    wc[taken++] = cq.peeked.front();
    cq.peeked.pop_front();
  }
  return taken;
}

// ---- Functions of an ibv_cq_ex. From a successful start_poll to end_poll, the queue belongs to one thread.

/// The completion that the structure shows.
void complete_current(Cq& cq, ibv_cq_ex* calls, const void* caller) {
  Completed completion{calls->wr_id, calls->status, IBV_WC_SEND, 0};
  if (calls->status == IBV_WC_SUCCESS) {
    completion.opcode = calls->read_opcode(calls);
    if (cq.has_lengths && (completion.opcode & IBV_WC_RECV) != 0) completion.bytes = calls->read_byte_len(calls);
  }
  const Locked locked;
  complete(completion, caller);
  calls->wr_id = completion.wr_id;
}

int start_poll(ibv_cq_ex* calls, ibv_poll_cq_attr* attributes) {
  Cq& cq = *cq_of(calls);
  cq.polling.lock();
  const int error = cq.start_poll(calls, attributes);
  if (error == 0) {
    complete_current(cq, calls, __builtin_frame_address(0));
    return 0;
  }
  if (error == ENOENT) cq.is_empty_since_arm = true;
  cq.polling.unlock();
  return error;
}

int next_poll(ibv_cq_ex* calls) {
  Cq& cq = *cq_of(calls);
  const int error = cq.next_poll(calls);
  if (error == 0) complete_current(cq, calls, __builtin_frame_address(0));
  if (error == ENOENT) cq.is_empty_since_arm = true;
  return error;
}

void end_poll(ibv_cq_ex* calls) {
  Cq& cq = *cq_of(calls);
  cq.end_poll(calls);
  cq.polling.unlock();
}

}  // namespace

int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  const Inside inside;
  auto* const behind = table_of(cq->context, &Context::ops).poll_cq;
  Cq* const known = cq_of(cq);
  if (known == nullptr) return behind(cq, count, wc);
  const std::scoped_lock order(known->polling);
  const int peeked = take_peeked(*known, count, wc);
  const int polled = peeked < count ? behind(cq, count - peeked, wc + peeked) : 0;
  if (polled < 0) {
    const Locked locked;
    note_overrun(*known);
  }
  if (polled < 0 && peeked == 0) return polled;
  const int found = peeked + std::max(polled, 0);
  if (found < count) known->is_empty_since_arm = true;
  if (found == 0) return 0;
  const Locked locked;
  for (int i = 0; i < found; ++i) {
    Completed completion{wc[i].wr_id, wc[i].status, wc[i].opcode, wc[i].byte_len};
    complete(completion, __builtin_frame_address(0));
    wc[i].wr_id = completion.wr_id;
  }
  return found;
}

int req_notify_cq(ibv_cq* cq, int solicited_only) {
  auto* const behind = table_of(cq->context, &Context::ops).req_notify_cq;
  Cq* const known = cq_of(cq);
  if (known == nullptr) return behind(cq, solicited_only);
  {
    const Locked locked;
    // An arm for all completions is not weakened by one for solicited ones.
    known->is_solicited = solicited_only != 0 && (!known->is_armed || known->is_solicited);
    known->is_armed = known->was_armed = true;
    known->is_empty_since_arm = false;
  }
  const int error = behind(cq, solicited_only);
  if (error != 0) known->is_armed = false;
  return error;
}

void replace_functions(Cq& cq, ibv_cq_ex& calls) {
  cq.start_poll = std::exchange(calls.start_poll, start_poll);
  cq.next_poll = std::exchange(calls.next_poll, next_poll);
  cq.end_poll = std::exchange(calls.end_poll, end_poll);
}

}  // namespace rdmacomm::softdev::check
