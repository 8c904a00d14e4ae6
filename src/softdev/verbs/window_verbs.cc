// The verbs of memory windows.
#include <cerrno>
#include <memory>

#include "softdev/context/soft_context.h"
#include "softdev/memory/soft_mr.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {

ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  if (type != IBV_MW_TYPE_1 && type != IBV_MW_TYPE_2) return fail<ibv_mw>(EINVAL);
  if (const int refused = refusal(pd->context, FaultCall::kAllocMw); refused != 0) return fail<ibv_mw>(refused);
  auto window = std::make_unique<SoftMw>();
  window->context = pd->context;
  window->pd = pd;
  window->type = type;
  const int error = SoftContext::from(pd->context).windows().add(*window);
  if (error != 0) return fail<ibv_mw>(error);
  ++SoftPd::from(pd).users;
  return window.release();
}

int dealloc_mw(ibv_mw* mw) {
  SoftMw& window = SoftMw::from(mw);
  SoftContext::from(mw->context).windows().remove(window);
  --SoftPd::from(mw->pd).users;
  delete &window;
  return 0;
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  wr.bind_mw = {mw, ibv_inc_rkey(mw->rkey), bind->bind_info};
  ibv_send_wr* bad = nullptr;
  const int error = SoftQp::from(qp).post_send(&wr, &bad);
  if (error == 0) mw->rkey = wr.bind_mw.rkey;
  return error;
}

}  // namespace rdmacomm::softdev
