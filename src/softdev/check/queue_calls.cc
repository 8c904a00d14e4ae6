// The calls for completion queues, channels, queue pairs and shared receive queues, in front of those of libibverbs.
#include <infiniband/verbs.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

#include "softdev/check/channels.h"
#include "softdev/check/copies.h"
#include "softdev/check/next.h"
#include "softdev/check/object_calls.h"
#include "softdev/check/options.h"
#include "softdev/check/report.h"
#include "softdev/check/requests.h"
#include "softdev/check/tables.h"

namespace rdmacomm::softdev::check {
namespace {

/// With `--check=capacity`: the sum of the depths of all queue pairs of a completion queue.
void check_capacity(const Cq& cq) {
  if (!options().capacity) return;
  std::uint64_t sum = 0;
  StackId last = 0;
  for (const auto& [address, object] : objects().all()) {
    if (object->kind != ObjectKind::kQp) continue;
    const auto& qp = static_cast<const Qp&>(*object);
    if (qp.send_cq == &cq) sum += qp.capacity.max_send_wr;
    if (qp.recv_cq == &cq && qp.srq == nullptr) sum += qp.capacity.max_recv_wr;
    if (qp.send_cq == &cq || qp.recv_cq == &cq) last = qp.created;
  }
  if (sum <= static_cast<std::uint64_t>(cq.verbs->cqe)) return;
  Report small{Rule::kQueueTooSmall,
               "the queue pairs of a queue with " + std::to_string(cq.verbs->cqe) + " entries take " +
                   std::to_string(sum) + " requests",
               {}};
  small.line("completion queue", "created at", cq.created).line("a queue pair", "created at", last);
  report(small);
}

void describe_qp(Qp& qp, const ibv_qp_cap& capacity, bool signals_all) {
  qp.capacity = capacity;
  qp.signals_all = signals_all;
  qp.send_cq = objects().find_as<Cq>(qp.verbs->send_cq);
  qp.recv_cq = objects().find_as<Cq>(qp.verbs->recv_cq);
  qp.srq = objects().find_as<Srq>(qp.verbs->srq);
  if (qp.srq != nullptr && qp.recv_cq != nullptr) qp.srq->queues.insert(qp.recv_cq);
}

ibv_qp* record_qp(ibv_qp* made, const ibv_qp_cap& capacity, bool signals_all) {
  if (made == nullptr) return nullptr;
  record<Qp>(made, {made->context, made->pd, made->send_cq, made->recv_cq, made->srq},
             [&](Qp& qp) { describe_qp(qp, capacity, signals_all); });
  const Locked locked;
  const auto& qp = *objects().find_as<Qp>(made);
  for (const Cq* const cq : {qp.send_cq, qp.recv_cq}) {
    if (cq != nullptr) check_capacity(*cq);
  }
  return made;
}

/// Receives that wait are no error: most programs end so.
void check_outstanding(const Qp& qp, StackId where) {
  if (qp.state != IBV_QPS_RTS && qp.state != IBV_QPS_SQD) return;
  const Request* waiting = nullptr;
  for (const Request* const each : qp.sends.requests) {
    if (each->is_signaled && waiting == nullptr) waiting = each;
  }
  if (waiting == nullptr && options().ends && !qp.receives.requests.empty()) waiting = qp.receives.requests.front();
  if (waiting == nullptr) return;
  Report in_use{Rule::kDestroyedInUse,
                "a queue pair was destroyed with " + std::to_string(qp.sends.signaled) + " sends and " +
                    std::to_string(qp.receives.requests.size()) + " receives whose completions were not polled",
                {}};
  in_use.line("destroyed", "at", where);
  report(tell_request(in_use, *waiting, "first request"));
}

/// Acknowledges the events of an object that is about to be destroyed, and reports them: the call would wait for ever.
void acknowledge(Object& object, Cq* cq) {
  const std::uint64_t waiting = cq == nullptr ? 0 : check_events(*cq, cq->events);
  std::vector<ibv_async_event> events = take_async_events(object);
  if (waiting != 0) {
    cq->events.acknowledged += waiting;
    next<decltype(ibv_ack_cq_events)>("ibv_ack_cq_events")(cq->verbs, static_cast<unsigned>(waiting));
  }
  for (ibv_async_event& event : events) next<decltype(ibv_ack_async_event)>("ibv_ack_async_event")(&event);
  if (waiting != 0 || !events.empty()) note_acknowledged(object.address);
}

/// Waits until the program has acknowledged the events of an object, up to a second: another thread may be about to do
/// it, and the call that destroys the object waits for that.
void settle_events(const void* address) {
  constexpr int kMilliseconds = 1000;
  for (int waited = 0;; ++waited) {
    {
      const Locked locked;
      Object* const object = objects().find(address);
      if (object == nullptr || objects().user_of(address) != nullptr) return;
      Cq* const cq = dynamic_cast<Cq*>(object);
      if (object->unacknowledged.empty() && (cq == nullptr || cq->events.waiting() == 0)) return;
      if (waited == kMilliseconds) return acknowledge(*object, cq);
    }
    usleep(1000);
  }
}

/// Its completions are no longer polled for.
void end_queue_pair(Qp& qp) {
  requests().remove_all(qp.sends);
  requests().remove_all(qp.receives);
  for (Cq* const cq : {qp.send_cq, qp.recv_cq}) {
    if (cq == nullptr) continue;
    std::erase_if(cq->peeked, [&](const ibv_wc& wc) { return wc.qp_num == qp.verbs->qp_num; });
  }
}

}  // namespace

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes) {
  auto* const behind = table_of(context, &Context::create_cq_ex);
  ibv_cq_init_attr_ex with_lengths = *attributes;
  with_lengths.wc_flags |= IBV_WC_EX_WITH_BYTE_LEN;
  bool has_lengths = true;
  ibv_cq_ex* made = behind(context, &with_lengths);
  if (made == nullptr && with_lengths.wc_flags != attributes->wc_flags) {
    made = behind(context, attributes);
    has_lengths = false;
  }
  if (made == nullptr) return nullptr;
  record<Cq>(ibv_cq_ex_to_cq(made), {context, attributes->channel}, [&](Cq& cq) {
    cq.is_extended = true;
    cq.has_lengths = has_lengths;
    replace_functions(cq, *made);
  });
  return made;
}

ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes) {
  ibv_qp* const made = table_of(context, &Context::create_qp_ex)(context, attributes);
  return record_qp(made, attributes->cap, attributes->sq_sig_all != 0);
}

ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes) {
  ibv_srq* const made = table_of(context, &Context::create_srq_ex)(context, attributes);
  const bool is_xrc = (attributes->comp_mask & IBV_SRQ_INIT_ATTR_TYPE) != 0 && attributes->srq_type == IBV_SRQT_XRC;
  const void* const cq = is_xrc ? attributes->cq : nullptr;
  const void* const domain = is_xrc ? attributes->xrcd : nullptr;
  return record<Srq>(made, {context, made == nullptr ? nullptr : made->pd, cq, domain}, [&](Srq& srq) {
    srq.max_sge = attributes->attr.max_sge;
    srq.is_xrc = is_xrc;
    if (const auto* const known = objects().find_as<Cq>(cq); known != nullptr) srq.queues.insert(known);
  });
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes) {
  ibv_qp* const opened = table_of(context, &Context::open_qp)(context, attributes);
  if (opened == nullptr) return nullptr;
  {
    const Locked locked;
    if (auto* const known = objects().find_as<Qp>(opened); known != nullptr) {
      ++known->references;
      return opened;
    }
  }
  return record<Qp>(opened, {context}, [](Qp& qp) { qp.is_opened = true; });
}

}  // namespace rdmacomm::softdev::check

namespace check = rdmacomm::softdev::check;
using check::ObjectKind;
using check::Plain;

// ---- Completion queues and channels

RDMACOMM_CHECKS ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  RDMACOMM_BEHIND(ibv_create_comp_channel);
  return check::record<check::Channel>(behind(context), {context});
}

RDMACOMM_CHECKS int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  RDMACOMM_BEHIND(ibv_destroy_comp_channel);
  return check::end_object(channel, "ibv_destroy_comp_channel", [&] { return behind(channel); });
}

RDMACOMM_CHECKS ibv_cq* ibv_create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel,
                                      int vector) {
  RDMACOMM_BEHIND(ibv_create_cq);
  return check::record<check::Cq>(behind(context, depth, cq_context, channel, vector), {context, channel});
}

RDMACOMM_CHECKS int ibv_resize_cq(ibv_cq* cq, int depth) {
  RDMACOMM_BEHIND(ibv_resize_cq);
  const int error = behind(cq, depth);
  const check::Locked locked;
  if (auto* const known = check::objects().find_as<check::Cq>(cq); known != nullptr) known->is_told_small = false;
  return error;
}

RDMACOMM_CHECKS int ibv_destroy_cq(ibv_cq* cq) {
  RDMACOMM_BEHIND(ibv_destroy_cq);
  check::settle_events(cq);
  return check::end_queue<check::Cq>(
      cq, "ibv_destroy_cq", [&] { return behind(cq); },
      [](const check::Cq& ended) {
        for (const auto& [address, object] : check::objects().all()) {
          if (object->kind == ObjectKind::kSrq) static_cast<check::Srq&>(*object).queues.erase(&ended);
        }
      });
}

// ---- Queue pairs

RDMACOMM_CHECKS ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  RDMACOMM_BEHIND(ibv_create_qp);
  ibv_qp* const made = behind(pd, init);
  return check::record_qp(made, init->cap, init->sq_sig_all != 0);
}

RDMACOMM_CHECKS ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  RDMACOMM_BEHIND(ibv_qp_to_qp_ex);
  ibv_qp_ex* const calls = behind(qp);
  if (calls == nullptr) return nullptr;
  const check::Locked locked;
  auto* const known = check::objects().find_as<check::Qp>(qp);
  if (known != nullptr) check::replace_functions(*known, *calls);
  return calls;
}

RDMACOMM_CHECKS int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  RDMACOMM_BEHIND(ibv_modify_qp);
  const int error = behind(qp, attributes, mask);
  if (error != 0 || (mask & IBV_QP_STATE) == 0) return error;
  const check::Locked locked;
  auto* const known = check::objects().find_as<check::Qp>(qp);
  if (known == nullptr) return 0;
  known->state = attributes->qp_state;
  if ((mask & IBV_QP_DEST_QPN) != 0) known->peer_qpn = attributes->dest_qp_num;
  if (known->state == IBV_QPS_RESET) check::end_queue_pair(*known);
  return 0;
}

RDMACOMM_CHECKS int ibv_destroy_qp(ibv_qp* qp) {
  RDMACOMM_BEHIND(ibv_destroy_qp);
  const check::StackId where = check::capture_stack();
  bool is_last = true;
  {
    const check::Locked locked;
    auto* const known = check::objects().find_as<check::Qp>(qp);
    if (known != nullptr && known->references != 1) {
      is_last = false;
    } else if (known != nullptr) {
      check::check_outstanding(*known, where);
    }
  }
  if (!is_last) {
    const int error = behind(qp);
    const check::Locked locked;
    auto* const known = check::objects().find_as<check::Qp>(qp);
    if (error == 0 && known != nullptr) --known->references;
    return error;
  }
  check::settle_events(qp);
  return check::end_queue<check::Qp>(
      qp, "ibv_destroy_qp", [&] { return behind(qp); }, [](check::Qp& ended) { check::end_queue_pair(ended); });
}

// ---- Shared receive queues

RDMACOMM_CHECKS ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  RDMACOMM_BEHIND(ibv_create_srq);
  ibv_srq* const made = behind(pd, attributes);
  return check::record<check::Srq>(made, {pd->context, pd},
                                   [&](check::Srq& srq) { srq.max_sge = attributes->attr.max_sge; });
}

RDMACOMM_CHECKS int ibv_destroy_srq(ibv_srq* srq) {
  RDMACOMM_BEHIND(ibv_destroy_srq);
  check::settle_events(srq);
  return check::end_queue<check::Srq>(
      srq, "ibv_destroy_srq", [&] { return behind(srq); },
      [](check::Srq& ended) { check::requests().remove_all(ended.receives); });
}
