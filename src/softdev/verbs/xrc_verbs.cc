// The verbs of XRC: domains, their shared receive queues, and queue pairs opened by number.
#include <cerrno>
#include <memory>
#include <utility>

#include "softdev/context/soft_context.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* init) {
  if (const int error = device_error(context); error != 0) return fail<ibv_xrcd>(error);
  constexpr std::uint32_t kNeeded = IBV_XRCD_INIT_ATTR_FD | IBV_XRCD_INIT_ATTR_OFLAGS;
  if ((init->comp_mask & ~kNeeded) != 0) return fail<ibv_xrcd>(EOPNOTSUPP);
  if (init->comp_mask != kNeeded) return fail<ibv_xrcd>(EINVAL);
  SoftContext& soft = SoftContext::from(context);
  SharedBlock block = soft.segment().allocate(sizeof(CqShared));
  if (block.mapping.empty()) return nullptr;
  auto domain = std::make_unique<SoftXrcd>(soft.premises(), std::move(block));
  const int error = domain->enter(init->fd, init->oflags);
  if (error != 0) {
    soft.segment().free(domain->nowhere().take_block());
    return fail<ibv_xrcd>(error);
  }
  soft.xrc_domains().insert(*domain);
  return domain.release();
}

int close_xrcd(ibv_xrcd* xrcd) {
  SoftXrcd& domain = SoftXrcd::from(xrcd);
  if (domain.users.load() != 0) return EBUSY;
  SoftContext& soft = SoftContext::from(xrcd->context);
  soft.xrc_domains().remove(domain);
  soft.give_back(soft.segment(), domain.nowhere().take_block());
  delete &domain;
  return 0;
}

namespace {

/// Gives a shared receive queue its number, and the kXrcQueue that receives messages for it. Returns 0, or an errno
/// value.
int make_reachable(SoftSrq& srq, SoftXrcd& domain, ibv_cq* cq) {
  ibv_qp_init_attr init{};
  init.qp_type = IBV_QPT_XRC_RECV;
  init.send_cq = init.recv_cq = cq;
  init.srq = &srq;
  const auto arrivals =
      SoftQp::create(SoftContext::from(srq.context).premises(), {Service::kXrcQueue, srq.pd_number(), &domain}, init);
  if (arrivals == nullptr) return errno;
  srq.arrivals = arrivals.get();
  SoftCq::from(cq).attach_receiver(*arrivals);
  arrivals->accept_from_all();
  ++domain.users;
  return 0;
}

}  // namespace

ibv_srq* create_srq_ex(ibv_context* /*context*/, ibv_srq_init_attr_ex* init) {
  constexpr std::uint32_t kOfXrc = IBV_SRQ_INIT_ATTR_XRCD | IBV_SRQ_INIT_ATTR_CQ;
  constexpr std::uint32_t kKnown = IBV_SRQ_INIT_ATTR_TYPE | IBV_SRQ_INIT_ATTR_PD | kOfXrc;
  const std::uint32_t given = init->comp_mask;
  if ((given & ~kKnown) != 0) return fail<ibv_srq>(EOPNOTSUPP);
  const ibv_srq_type type = (given & IBV_SRQ_INIT_ATTR_TYPE) != 0 ? init->srq_type : IBV_SRQT_BASIC;
  if (type != IBV_SRQT_BASIC && type != IBV_SRQT_XRC) return fail<ibv_srq>(EOPNOTSUPP);
  const std::uint32_t needed = type == IBV_SRQT_XRC ? kOfXrc : 0;
  if ((given & IBV_SRQ_INIT_ATTR_PD) == 0 || (given & kOfXrc) != needed) return fail<ibv_srq>(EINVAL);
  // The first members are the same as those of ibv_srq_init_attr.
  ibv_srq* const srq = create_srq(init->pd, reinterpret_cast<ibv_srq_init_attr*>(init));
  if (srq == nullptr || type == IBV_SRQT_BASIC) return srq;
  const int error = make_reachable(SoftSrq::from(srq), SoftXrcd::from(init->xrcd), init->cq);
  if (error == 0) return srq;
  (void)destroy_srq(srq);
  return fail<ibv_srq>(error);
}

int get_srq_num(ibv_srq* srq, std::uint32_t* number) {
  const SoftQp* const arrivals = SoftSrq::from(srq).arrivals;
  if (arrivals == nullptr) return EINVAL;
  *number = arrivals->qp_base.qp_num;
  return 0;
}

ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* wanted) {
  if (const int error = device_error(context); error != 0) return fail<ibv_qp>(error);
  constexpr std::uint32_t kNeeded = IBV_QP_OPEN_ATTR_NUM | IBV_QP_OPEN_ATTR_XRCD | IBV_QP_OPEN_ATTR_TYPE;
  constexpr std::uint32_t kKnown = kNeeded | IBV_QP_OPEN_ATTR_CONTEXT;
  if ((wanted->comp_mask & ~kKnown) != 0) return fail<ibv_qp>(EOPNOTSUPP);
  if ((wanted->comp_mask & kNeeded) != kNeeded || wanted->qp_type != IBV_QPT_XRC_RECV) return fail<ibv_qp>(EINVAL);
  SoftContext& soft = SoftContext::from(context);
  if (!soft.queue_pairs().owns(wanted->qp_num)) return fail<ibv_qp>(EOPNOTSUPP);
  const auto qp = soft.queue_pairs().find(wanted->qp_num);
  const bool found = qp != nullptr && qp->xrc_domain() != nullptr && qp->shared_receives() == nullptr &&
                     qp->xrc_domain()->identity() == SoftXrcd::from(wanted->xrcd).identity();
  if (!found) return fail<ibv_qp>(EINVAL);
  // All handles are the same object, which has only one context pointer of the application.
  const bool other_context =
      (wanted->comp_mask & IBV_QP_OPEN_ATTR_CONTEXT) != 0 && wanted->qp_context != qp->qp_base.qp_context;
  if (other_context) return fail<ibv_qp>(EOPNOTSUPP);
  ++qp->handles;
  return qp->verbs();
}

}  // namespace rdmacomm::softdev
