// The verbs of shared receive queues.
#include <cerrno>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/context/soft_context.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {

ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* init) {
  const ibv_srq_attr& wanted = init->attr;
  if (wanted.max_wr < 1 || wanted.max_wr > kMaxQueueDepth || wanted.max_sge > kMaxSge) return fail<ibv_srq>(EINVAL);
  if (const int error = refusal(pd->context, FaultCall::kCreateSrq); error != 0) return fail<ibv_srq>(error);
  SoftContext& soft = SoftContext::from(pd->context);
  SharedBlock block = soft.segment().allocate(SrqView::bytes(SoftSrq::entries(wanted), wanted.max_sge));
  if (block.mapping.empty()) return nullptr;
  auto* const srq =
      new SoftSrq(soft.premises(), std::move(block), SoftPd::from(pd).number, {wanted.max_wr, wanted.max_sge, 0});
  srq->pd = pd;
  srq->srq_context = init->srq_context;
  soft.shared_receive_queues().insert(*srq);
  ++SoftPd::from(pd).users;
  return srq;
}

int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  if (const int error = device_error(srq->context); error != 0) return error;
  return SoftSrq::from(srq).modify(*attributes, mask);
}

int query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  if (const int error = device_error(srq->context); error != 0) return error;
  SoftSrq::from(srq).query(*attributes);
  return 0;
}

int destroy_srq(ibv_srq* srq) {
  SoftSrq& soft = SoftSrq::from(srq);
  if (soft.users.load() != 0) return EBUSY;
  SoftContext& context = SoftContext::from(srq->context);
  if (soft.arrivals != nullptr) {
    soft.arrivals->destroy();
    --soft.arrivals->xrc_domain()->users;
    (void)context.queue_pairs().remove(soft.arrivals->qp_base.qp_num);
  }
  context.events().retire(soft.events);
  context.shared_receive_queues().remove(soft);
  context.stragglers().forget(soft);
  context.give_back(context.segment(), soft.take_block());
  --SoftPd::from(srq->pd).users;
  delete &soft;
  return 0;
}

}  // namespace rdmacomm::softdev
