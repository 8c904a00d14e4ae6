// tables.h - the tables of functions that a context, a queue pair and a completion queue have, and the checker's
// functions in them.
#pragma once

#include <infiniband/verbs.h>

#include "softdev/check/locked.h"
#include "softdev/check/objects.h"

namespace rdmacomm::softdev::check {

/// A member of the context that a structure belongs to. All contexts are known, because their tables lead here.
template <typename Member>
Member table_of(ibv_context* context, Member Context::*member) {
  const Locked locked;
  return objects().find_as<Context>(context)->*member;
}

/// Replaces the functions of a context that was opened.
void replace_functions(Context& context);
/// Replaces the functions behind ibv_wr_*.
void replace_functions(Qp& qp, ibv_qp_ex& calls);
/// Replaces the functions behind ibv_start_poll and the calls that belong to it.
void replace_functions(Cq& cq, ibv_cq_ex& calls);

// ---- Functions of a context

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad);
int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad);
int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad);
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
int poll_cq(ibv_cq* cq, int count, ibv_wc* wc);
int req_notify_cq(ibv_cq* cq, int solicited_only);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* attributes);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* attributes);
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* attributes);
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* attributes);

}  // namespace rdmacomm::softdev::check
