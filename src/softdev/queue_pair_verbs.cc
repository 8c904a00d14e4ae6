// The verbs of queue pairs.
#include <cerrno>
#include <memory>
#include <utility>

#include "softdev/device_limits.h"
#include "softdev/request_builder.h"
#include "softdev/soft_context.h"
#include "softdev/soft_cq.h"
#include "softdev/soft_pd.h"
#include "softdev/soft_qp.h"
#include "softdev/soft_srq.h"
#include "softdev/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

int check_capabilities(const ibv_qp_init_attr& init) {
  const ibv_qp_cap& cap = init.cap;
  if (init.qp_type != IBV_QPT_RC && init.qp_type != IBV_QPT_UC && init.qp_type != IBV_QPT_UD) return EOPNOTSUPP;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  const bool too_much = cap.max_send_wr > kMaxQueueDepth || cap.max_recv_wr > kMaxQueueDepth ||
                        cap.max_send_sge > kMaxSge || cap.max_recv_sge > kMaxSge ||
                        cap.max_inline_data > kMaxInlineBytes;
  return too_much ? EINVAL : 0;
}

}  // namespace

ibv_qp* create_qp_ex(ibv_context* /*context*/, ibv_qp_init_attr_ex* init) {
  constexpr std::uint32_t kKnown =
      IBV_QP_INIT_ATTR_PD | IBV_QP_INIT_ATTR_CREATE_FLAGS | IBV_QP_INIT_ATTR_SEND_OPS_FLAGS;
  const auto given = [init](std::uint32_t bit) { return (init->comp_mask & bit) != 0; };
  if ((init->comp_mask & ~kKnown) != 0) return fail<ibv_qp>(EOPNOTSUPP);
  if (!given(IBV_QP_INIT_ATTR_PD)) return fail<ibv_qp>(EINVAL);
  if (given(IBV_QP_INIT_ATTR_CREATE_FLAGS) && init->create_flags != 0) return fail<ibv_qp>(EOPNOTSUPP);
  const bool by_calls = given(IBV_QP_INIT_ATTR_SEND_OPS_FLAGS);
  if (by_calls && (init->send_ops_flags & ~RequestBuilder::operations_of(init->qp_type)) != 0)
    return fail<ibv_qp>(EOPNOTSUPP);
  // The attributes begin as those of create_qp do.
  ibv_qp* const qp = create_qp(init->pd, reinterpret_cast<ibv_qp_init_attr*>(init));
  if (qp != nullptr && by_calls) SoftQp::from(qp).post_by_calls(init->send_ops_flags);
  return qp;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  if (init->srq != nullptr) init->cap.max_recv_wr = init->cap.max_recv_sge = 0;  // it receives from there alone
  const int wrong = check_capabilities(*init);
  if (wrong != 0) return fail<ibv_qp>(wrong);
  SoftContext& soft = SoftContext::from(pd->context);
  const int error = soft.ensure_threads();
  if (error != 0) return fail<ibv_qp>(error);
  SharedBlock block = soft.segment().allocate(QpView::bytes(SoftQp::recv_entries(*init), init->cap.max_recv_sge));
  if (block.mapping.empty()) return nullptr;
  UniqueFd listener;
  const std::uint32_t qpn = soft.queue_pairs().take_number(listener);
  if (qpn == 0) {
    const int reason = errno;
    soft.segment().free(std::move(block));
    return fail<ibv_qp>(reason);
  }
  auto qp = std::make_shared<SoftQp>(soft, std::move(block), qpn, SoftPd::from(pd).number, *init);
  qp->qp_base.pd = pd;
  soft.queue_pairs().insert(qp);
  SoftCq::from(init->send_cq).attach_sender(*qp);
  SoftCq::from(init->recv_cq).attach_receiver(*qp);
  if (listener) soft.server().add_listener(std::move(listener));
  ++SoftPd::from(pd).users;
  if (init->srq != nullptr) ++SoftSrq::from(init->srq).users;
  return qp->verbs();
}

ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp) {
  SoftQp& soft = SoftQp::from(qp);
  return soft.posts_by_calls() ? &soft : nullptr;
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  return SoftQp::from(qp).modify(*attributes, mask);
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* init) {
  SoftQp::from(qp).query(*attributes, *init);
  return 0;
}

int destroy_qp(ibv_qp* qp) {
  SoftContext& soft = SoftContext::from(qp->context);
  SoftQp& target = SoftQp::from(qp);
  if (target.in_groups()) return EBUSY;
  target.destroy();
  const auto kept = soft.queue_pairs().remove(qp->qp_num);
  soft.events().retire(target.events);
  --SoftPd::from(qp->pd).users;
  if (target.shared_receives() != nullptr) --target.shared_receives()->users;
  return 0;
}

}  // namespace rdmacomm::softdev
