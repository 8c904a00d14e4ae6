// The table of verbs that programs call through an ibv_context.
#include <algorithm>
#include <cerrno>
#include <cstring>

#include "softdev/context/soft_context.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return SoftQp::from(qp).post_send(wr, bad);
}
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return SoftQp::from(qp).post_recv(wr, bad);
}
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return SoftSrq::from(srq).post_recv(wr, bad);
}
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc) {
  return SoftCq::from(cq).poll(count, wc);
}
int req_notify_cq(ibv_cq* cq, int solicited_only) {
  return SoftCq::from(cq).arm(solicited_only != 0);
}

// The same for a context with faults.

template <typename Request>
bool has_failed(ibv_context* context, Request* wr, Request** bad) {
  if (!SoftContext::from(context).faults()->has_failed()) return false;
  *bad = wr;
  return true;
}
int post_send_to_faulty(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return has_failed(qp->context, wr, bad) ? EIO : post_send(qp, wr, bad);
}
int post_recv_to_faulty(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return has_failed(qp->context, wr, bad) ? EIO : post_recv(qp, wr, bad);
}
int post_srq_recv_to_faulty(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return has_failed(srq->context, wr, bad) ? EIO : post_srq_recv(srq, wr, bad);
}

// The functions that <infiniband/verbs.h> calls through the verbs_context around an ibv_context. The caller's
// structures may be shorter or longer than these, because they are of an older or newer release.

template <typename Attributes>
void copy_of_any_size(const Attributes& whole, Attributes* to, std::size_t size) {
  std::memset(static_cast<void*>(to), 0, size);
  std::memcpy(static_cast<void*>(to), &whole, std::min(size, sizeof(whole)));
}

int query_port_of_any_size(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes, std::size_t size) {
  ibv_port_attr whole{};
  const int error = query_port(context, port, &whole);
  if (error == 0) copy_of_any_size(whole, attributes, size);
  return error;
}

int query_device_of_any_size(ibv_context* context, const ibv_query_device_ex_input* input,
                             ibv_device_attr_ex* attributes, std::size_t size) {
  if (input != nullptr && input->comp_mask != 0) return EINVAL;
  if (size < sizeof(ibv_device_attr)) return EINVAL;
  ibv_device_attr_ex whole{};
  const int error = query_device_ex(context, &whole);
  if (error == 0) copy_of_any_size(whole, attributes, size);
  return error;
}

}  // namespace

void set_verbs(verbs_context& context) {
  context.context.ops.post_send = post_send;
  context.context.ops.post_recv = post_recv;
  context.context.ops.post_srq_recv = post_srq_recv;
  context.context.ops.poll_cq = poll_cq;
  context.context.ops.req_notify_cq = req_notify_cq;
  context.context.ops.alloc_mw = alloc_mw;
  context.context.ops.bind_mw = bind_mw;
  context.context.ops.dealloc_mw = dealloc_mw;
  context.query_port = query_port_of_any_size;
  context.query_device_ex = query_device_of_any_size;
  context.query_rt_values = query_rt_values;
  context.create_cq_ex = create_cq_ex;
  context.create_qp_ex = create_qp_ex;
  context.open_xrcd = open_xrcd;
  context.close_xrcd = close_xrcd;
  context.create_srq_ex = create_srq_ex;
  context.get_srq_num = get_srq_num;
  context.open_qp = open_qp;
  context.alloc_parent_domain = alloc_parent_domain;
  context.alloc_td = alloc_td;
  context.dealloc_td = dealloc_td;
  context.advise_mr = advise_mr;
  context.alloc_null_mr = alloc_null_mr;
  context.alloc_dm = alloc_dm;
  context.free_dm = free_dm;
  context.reg_dm_mr = reg_dm_mr;
}

void set_faulty_verbs(ibv_context& context) {
  context.ops.post_send = post_send_to_faulty;
  context.ops.post_recv = post_recv_to_faulty;
  context.ops.post_srq_recv = post_srq_recv_to_faulty;
}

int refusal(ibv_context* context, FaultCall call) {
  DeviceFaults* const faults = SoftContext::from(context).faults();
  return faults == nullptr ? 0 : faults->refusal(call);
}

int device_error(ibv_context* context) {
  const DeviceFaults* const faults = SoftContext::from(context).faults();
  return faults != nullptr && faults->has_failed() ? EIO : 0;
}

}  // namespace rdmacomm::softdev
