// The calls for contexts, domains, registrations and addresses, in front of those of libibverbs.
#include <infiniband/verbs.h>

#include <cerrno>
#include <string>

#include "softdev/check/channels.h"
#include "softdev/check/copies.h"
#include "softdev/check/next.h"
#include "softdev/check/object_calls.h"
#include "softdev/check/registrations.h"
#include "softdev/check/requests.h"
#include "softdev/check/tables.h"

#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace rdmacomm::softdev::check {
namespace {

/// The members of a verbs_context that a release of libibverbs may not have lie before the others.
template <typename Function>
void replace(verbs_context& whole, Function* verbs_context::*member, Function*& before, Function* function) {
  const auto* const base = reinterpret_cast<const std::byte*>(&whole);
  const auto* const place = reinterpret_cast<const std::byte*>(&(whole.*member));
  const auto offset = static_cast<std::size_t>(place - base);
  if (whole.sz < sizeof(whole) - offset || whole.*member == nullptr) return;
  before = std::exchange(whole.*member, function);
}

ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* attributes) {
  return record<Plain<ObjectKind::kXrcd>>(table_of(context, &Context::open_xrcd)(context, attributes), {context});
}
int close_xrcd(ibv_xrcd* xrcd) {
  auto* const behind = table_of(xrcd->context, &Context::close_xrcd);
  return end_object(xrcd, "ibv_close_xrcd", [&] { return behind(xrcd); });
}
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
  return record<Plain<ObjectKind::kDm>>(table_of(context, &Context::alloc_dm)(context, attributes), {context});
}
int free_dm(ibv_dm* dm) {
  auto* const behind = table_of(dm->context, &Context::free_dm);
  return end_object(dm, "ibv_free_dm", [&] { return behind(dm); });
}
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  return record<Plain<ObjectKind::kTd>>(table_of(context, &Context::alloc_td)(context, attributes), {context});
}
int dealloc_td(ibv_td* td) {
  auto* const behind = table_of(td->context, &Context::dealloc_td);
  return end_object(td, "ibv_dealloc_td", [&] { return behind(td); });
}
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  ibv_pd* const made = table_of(context, &Context::alloc_parent_domain)(context, attributes);
  return record<Plain<ObjectKind::kPd>>(made, {context, attributes->pd, attributes->td});
}
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access) {
  ibv_mr* const made = table_of(pd->context, &Context::reg_dm_mr)(pd, dm, offset, length, access);
  return record_registration(made,
                             Registered{.pd = pd, .used = dm, .length = length, .access = access, .is_memory = false});
}
ibv_mr* alloc_null_mr(ibv_pd* pd) {
  ibv_mr* const made = table_of(pd->context, &Context::alloc_null_mr)(pd);
  return record_registration(made, Registered{.pd = pd, .is_memory = false});
}
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type) {
  return record<Plain<ObjectKind::kMw>>(table_of(pd->context, &Context::ops).alloc_mw(pd, type), {pd});
}
int dealloc_mw(ibv_mw* mw) {
  auto* const behind = table_of(mw->context, &Context::ops).dealloc_mw;
  return end_object(mw, "ibv_dealloc_mw", [&] { return behind(mw); });
}

template <typename Function>
void replace(Function*& place, Function* function) {
  if (place != nullptr) place = function;
}

}  // namespace

void replace_functions(Context& context) {
  ibv_context_ops& ops = context.context->ops;
  replace(ops.post_send, post_send);
  replace(ops.post_recv, post_recv);
  replace(ops.post_srq_recv, post_srq_recv);
  replace(ops.poll_cq, poll_cq);
  replace(ops.req_notify_cq, req_notify_cq);
  replace(ops.bind_mw, bind_mw);
  replace(ops.alloc_mw, alloc_mw);
  replace(ops.dealloc_mw, dealloc_mw);
  verbs_context* const whole = verbs_get_ctx(context.context);
  if (whole == nullptr) return;
  replace(*whole, &verbs_context::create_cq_ex, context.create_cq_ex, create_cq_ex);
  replace(*whole, &verbs_context::create_qp_ex, context.create_qp_ex, create_qp_ex);
  replace(*whole, &verbs_context::create_srq_ex, context.create_srq_ex, create_srq_ex);
  replace(*whole, &verbs_context::open_qp, context.open_qp, open_qp);
  replace(*whole, &verbs_context::open_xrcd, context.open_xrcd, open_xrcd);
  replace(*whole, &verbs_context::close_xrcd, context.close_xrcd, close_xrcd);
  replace(*whole, &verbs_context::alloc_dm, context.alloc_dm, alloc_dm);
  replace(*whole, &verbs_context::free_dm, context.free_dm, free_dm);
  replace(*whole, &verbs_context::reg_dm_mr, context.reg_dm_mr, reg_dm_mr);
  replace(*whole, &verbs_context::alloc_null_mr, context.alloc_null_mr, alloc_null_mr);
  replace(*whole, &verbs_context::alloc_td, context.alloc_td, alloc_td);
  replace(*whole, &verbs_context::dealloc_td, context.dealloc_td, dealloc_td);
  replace(*whole, &verbs_context::alloc_parent_domain, context.alloc_parent_domain, alloc_parent_domain);
}

}  // namespace rdmacomm::softdev::check

namespace check = rdmacomm::softdev::check;
using check::ObjectKind;
using check::Plain;

RDMACOMM_CHECKS ibv_context* ibv_open_device(ibv_device* device) {
  RDMACOMM_BEHIND(ibv_open_device);
  ibv_context* const opened = behind(device);
  if (opened == nullptr) return nullptr;
  check::prepare_names();
  check::record<check::Context>(opened, {}, [](check::Context& context) { check::replace_functions(context); });
  return opened;
}

RDMACOMM_CHECKS int ibv_close_device(ibv_context* context) {
  RDMACOMM_BEHIND(ibv_close_device);
  return check::end_object(context, "ibv_close_device", [&] { return behind(context); });
}

// ---- Domains and addresses

RDMACOMM_CHECKS ibv_pd* ibv_alloc_pd(ibv_context* context) {
  RDMACOMM_BEHIND(ibv_alloc_pd);
  return check::record<Plain<ObjectKind::kPd>>(behind(context), {context});
}

RDMACOMM_CHECKS int ibv_dealloc_pd(ibv_pd* pd) {
  RDMACOMM_BEHIND(ibv_dealloc_pd);
  {
    const check::Locked locked;
    check::copies().release(pd);
  }
  return check::end_object(pd, "ibv_dealloc_pd", [&] { return behind(pd); });
}

RDMACOMM_CHECKS ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  RDMACOMM_BEHIND(ibv_create_ah);
  return check::record<Plain<ObjectKind::kAh>>(behind(pd, attributes), {pd});
}

RDMACOMM_CHECKS ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* header, std::uint8_t port) {
  RDMACOMM_BEHIND(ibv_create_ah_from_wc);
  return check::record<Plain<ObjectKind::kAh>>(behind(pd, wc, header, port), {pd});
}

RDMACOMM_CHECKS int ibv_destroy_ah(ibv_ah* ah) {
  RDMACOMM_BEHIND(ibv_destroy_ah);
  return check::end_object(ah, "ibv_destroy_ah", [&] { return behind(ah); });
}

// ---- Registrations

RDMACOMM_CHECKS ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  RDMACOMM_BEHIND(ibv_reg_mr);
  return check::record_registration(behind(pd, address, length, access), check::of_memory(pd, address, length, access));
}

RDMACOMM_CHECKS ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  RDMACOMM_BEHIND(ibv_reg_mr_iova);
  return check::record_registration(behind(pd, address, length, iova, access),
                                    check::of_memory(pd, address, length, access, iova));
}

RDMACOMM_CHECKS ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova,
                                         unsigned access) {
  RDMACOMM_BEHIND(ibv_reg_mr_iova2);
  return check::record_registration(behind(pd, address, length, iova, access),
                                    check::of_memory(pd, address, length, static_cast<int>(access), iova));
}

RDMACOMM_CHECKS ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                                          int fd, int access) {
  RDMACOMM_BEHIND(ibv_reg_dmabuf_mr);
  if (behind == nullptr) {
    errno = EOPNOTSUPP;
    return nullptr;
  }
  return check::record_registration(
      behind(pd, offset, length, iova, fd, access),
      check::Registered{.pd = pd, .length = length, .access = static_cast<unsigned>(access), .is_memory = false});
}

RDMACOMM_CHECKS int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  RDMACOMM_BEHIND(ibv_rereg_mr);
  check::check_deregistration(mr);
  const int result = behind(mr, flags, pd, address, length, access);
  if (result == 0) check::change_registration(mr, flags, pd, address, length, access);
  return result;
}

RDMACOMM_CHECKS int ibv_dereg_mr(ibv_mr* mr) {
  RDMACOMM_BEHIND(ibv_dereg_mr);
  check::check_deregistration(mr);
  return check::end_registration(mr, [&] { return behind(mr); });
}

// ---- Asynchronous events

RDMACOMM_CHECKS int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  RDMACOMM_BEHIND(ibv_get_async_event);
  const int result = behind(context, event);
  if (result != 0) return result;
  const check::StackId stack = check::capture_stack();
  const check::Locked locked;
  check::note_async_event(*event, context, stack);
  return 0;
}

RDMACOMM_CHECKS void ibv_ack_async_event(ibv_async_event* event) {
  RDMACOMM_BEHIND(ibv_ack_async_event);
  {
    const check::Locked locked;
    if (check::was_acknowledged(*event)) return;
    check::forget_async_event(*event);
  }
  behind(event);
}
