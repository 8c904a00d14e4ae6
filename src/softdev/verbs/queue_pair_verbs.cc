// The verbs of queue pairs.
#include <algorithm>
#include <cerrno>
#include <memory>

#include "softdev/common/device_limits.h"
#include "softdev/context/soft_context.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/request_builder.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

bool service_of(ibv_qp_type type, Service& service) {
  switch (type) {
    case IBV_QPT_RC: service = Service::kReliable; return true;
    case IBV_QPT_UC: service = Service::kUnreliable; return true;
    case IBV_QPT_UD: service = Service::kDatagram; return true;
    case IBV_QPT_XRC_SEND:
    case IBV_QPT_XRC_RECV: service = Service::kXrc; return true;
    default: return false;
  }
}

/// Devices give room for a few bytes even if none is requested, and programs depend on it (rdma_xclient).
constexpr std::uint32_t kLeastInlineBytes = 64;

bool fits(const ibv_qp_cap& cap) {
  return cap.max_send_wr <= kMaxQueueDepth && cap.max_recv_wr <= kMaxQueueDepth && cap.max_send_sge <= kMaxSge &&
         cap.max_recv_sge <= kMaxSge && cap.max_inline_data <= kMaxInlineBytes;
}

/// Creates the receiving end of an XRC connection. It has no queues and no protection domain. Its messages go to the
/// shared receive queues.
ibv_qp* create_xrc_receiver(const ibv_qp_init_attr_ex& init) {
  const bool given = (init.comp_mask & IBV_QP_INIT_ATTR_XRCD) != 0 && init.xrcd != nullptr;
  if (!given || init.srq != nullptr) return fail<ibv_qp>(EINVAL);
  if ((init.comp_mask & IBV_QP_INIT_ATTR_SEND_OPS_FLAGS) != 0) return fail<ibv_qp>(EINVAL);
  if (const int error = refusal(init.xrcd->context, FaultCall::kCreateQp); error != 0) return fail<ibv_qp>(error);
  SoftXrcd& domain = SoftXrcd::from(init.xrcd);
  ibv_qp_init_attr own{};
  own.qp_type = IBV_QPT_XRC_RECV;
  own.qp_context = init.qp_context;
  own.send_cq = own.recv_cq = domain.nowhere().verbs();
  const auto qp = SoftQp::create(SoftContext::from(init.xrcd->context).premises(), {Service::kXrc, 0, &domain}, own);
  if (qp == nullptr) return nullptr;
  qp->qp_base.send_cq = qp->qp_base.recv_cq = nullptr;
  // It uses no protection domain, but librdmacm reads it from the queue pair.
  if ((init.comp_mask & IBV_QP_INIT_ATTR_PD) != 0 && init.pd != nullptr) {
    qp->qp_base.pd = init.pd;
    ++SoftPd::from(init.pd).users;
  }
  ++domain.users;
  return qp->verbs();
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* /*context*/, ibv_qp_init_attr_ex* init) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_XRCD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto given = [init](std::uint32_t bit) { return (init->comp_mask & bit) != 0; };
  if ((init->comp_mask & ~kKnown) != 0) return fail<ibv_qp>(EOPNOTSUPP);
  if (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags != 0) return fail<ibv_qp>(EOPNOTSUPP);
  if (init->qp_type == IBV_QPT_XRC_RECV) return create_xrc_receiver(*init);
  if (!given(IBV_QP_INIT_ATTR_PD) || given(IBV_QP_INIT_ATTR_XRCD)) return fail<ibv_qp>(EINVAL);
  const bool by_calls = given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
  if (by_calls && (init->send_ops_flags & ~RequestBuilder::operations_of(init->qp_type)) != 0)
    return fail<ibv_qp>(EOPNOTSUPP);
  // The first members are the same as those of ibv_qp_init_attr.
  ibv_qp* const qp = create_qp(init->pd, reinterpret_cast<ibv_qp_init_attr*>(init));
  if (qp != nullptr && by_calls) SoftQp::from(qp).post_by_calls(init->send_ops_flags);
  return qp;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  Service service{};
  if (!service_of(init->qp_type, service)) return fail<ibv_qp>(EOPNOTSUPP);
  const bool sends_only = init->qp_type == IBV_QPT_XRC_SEND;
  if (init->qp_type == IBV_QPT_XRC_RECV || (sends_only && init->srq != nullptr)) return fail<ibv_qp>(EINVAL);
  // It receives only from the shared receive queue, or not at all.
  if (init->srq != nullptr || sends_only) init->cap.max_recv_wr = init->cap.max_recv_sge = 0;
  init->cap.max_inline_data = std::max(init->cap.max_inline_data, kLeastInlineBytes);
  ibv_qp_init_attr own = *init;
  if (sends_only) own.recv_cq = own.send_cq;
  if (own.send_cq == nullptr || own.recv_cq == nullptr || !fits(own.cap)) return fail<ibv_qp>(EINVAL);
  if (const int error = refusal(pd->context, FaultCall::kCreateQp); error != 0) return fail<ibv_qp>(error);
  const auto qp =
      SoftQp::create(SoftContext::from(pd->context).premises(), {service, SoftPd::from(pd).number, nullptr}, own);
  if (qp == nullptr) return nullptr;
  qp->qp_base.pd = pd;
  qp->qp_base.recv_cq = init->recv_cq;
  SoftCq::from(own.send_cq).attach_sender(*qp);
  if (!sends_only) SoftCq::from(own.recv_cq).attach_receiver(*qp);
  ++SoftPd::from(pd).users;
  if (init->srq != nullptr) ++SoftSrq::from(init->srq).users;
  return qp->verbs();
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) {
  SoftQp& soft = SoftQp::from(qp);
  return soft.posts_by_calls() ? &soft : nullptr;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  if (const int error = refusal(qp->context, FaultCall::kModifyQp); error != 0) return error;
  return SoftQp::from(qp).modify(*attributes, mask);
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* init) {
  if (const int error = device_error(qp->context); error != 0) return error;
  SoftQp::from(qp).query(*attributes, *init);
  return 0;
}

int destroy_qp(ibv_qp* qp) {
  SoftContext& soft = SoftContext::from(qp->context);
  SoftQp& target = SoftQp::from(qp);
  if (target.in_groups()) return EBUSY;
  if (--target.handles != 0) return 0;  // other handles are still open
  target.destroy();
  const auto kept = soft.queue_pairs().remove(qp->qp_num);
  soft.events().retire(target.events);
  if (qp->pd != nullptr) --SoftPd::from(qp->pd).users;
  if (target.xrc_domain() != nullptr) --target.xrc_domain()->users;
  if (target.shared_receives() != nullptr) --target.shared_receives()->users;
  return 0;
}

}  // namespace rdmacomm::softdev
