// The verbs of contexts and of the objects in them: forwards each call to soft0 or to libibverbs.
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstring>

#include "softdev/context/soft_context.h"
#include "softdev/preload/next.h"
#include "softdev/preload/whose.h"
#include "softdev/verbs/soft_verbs.h"
#include "verbs/event_element.h"

// verbs.h defines these functions as macros.
#undef ibv_query_port
#undef ibv_reg_mr
#undef ibv_reg_mr_iova

namespace {

namespace softdev = rdmacomm::softdev;

using softdev::preload::refuse;
using softdev::preload::soft;
using softdev::preload::with_errno;

bool of_soft0(const ibv_async_event* event) noexcept {
  using rdmacomm::verbs::EventElement;
  switch (rdmacomm::verbs::element_of(event->event_type)) {
    case EventElement::kCq: return soft(event->element.cq);
    case EventElement::kQp: return soft(event->element.qp);
    case EventElement::kSrq: return soft(event->element.srq);
    default: return false;
  }
}

int query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  ibv_gid_entry entry{};
  if (softdev::query_gid_entry(context, port, static_cast<std::uint32_t>(index), &entry) != 0)
    return refuse(-1, EINVAL);
  *gid = entry.gid;
  return 0;
}

int query_gid_of_size(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t size) {
  if (flags != 0 || size < sizeof(*entry)) return EINVAL;
  return softdev::query_gid_entry(context, port, index, entry);
}

ssize_t query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t most, std::uint32_t flags,
                        std::size_t size) {
  if (flags != 0 || size < sizeof(*entries)) return -EINVAL;
  std::size_t found = 0;
  auto* to = reinterpret_cast<std::byte*>(entries);
  const unsigned ports = softdev::SoftContext::from(context).identity().ports;
  for (unsigned port = 1; port <= ports; ++port) {
    ibv_gid_entry entry{};
    for (std::uint32_t index = 0; softdev::query_gid_entry(context, port, index, &entry) == 0; ++index) {
      if (found == most) return -EINVAL;  // like the kernel: all entries, or none
      std::memcpy(to + found++ * size, &entry, sizeof(entry));
    }
  }
  return static_cast<ssize_t>(found);
}

/// The type with the values of libibverbs' private function for librdmacm: 0 IB or RoCE v1, 1 RoCE v2.
int query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  ibv_gid_entry entry{};
  if (softdev::query_gid_entry(context, port, index, &entry) != 0) return refuse(-1, EINVAL);
  *type = entry.gid_type == IBV_GID_TYPE_ROCE_V2 ? 1 : 0;
  return 0;
}

int get_pkey_index(ibv_context* context, std::uint8_t port, __be16 wanted) {
  __be16 pkey = 0;
  for (int index = 0; softdev::query_pkey(context, port, index, &pkey) == 0; ++index) {
    if (pkey == wanted) return index;
  }
  return -1;
}

/// For programs built against the first release, whose ibv_port_attr ends before `flags`.
int query_port_of_old(ibv_context* context, std::uint8_t port, void* attributes) {
  ibv_port_attr whole{};
  const int error = softdev::query_port(context, port, &whole);
  if (error == 0) std::memcpy(attributes, &whole, offsetof(ibv_port_attr, flags));
  return error;
}

}  // namespace

extern "C" {

// libibverbs exports it for librdmacm; no header declares it.
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type);

// ---- Contexts

ibv_context* ibv_import_device(int fd) {
  RDMACOMM_FRONT(ibv_import_device, softdev::SoftContext::is_command_fd(fd), refuse<ibv_context*>(nullptr), (fd));
}
int ibv_close_device(ibv_context* context) {
  RDMACOMM_FRONT(ibv_close_device, soft(context), softdev::close_device(context), (context));
}
int ibv_query_device(ibv_context* context, ibv_device_attr* attributes) {
  RDMACOMM_FRONT(ibv_query_device, soft(context), softdev::query_device(context, attributes), (context, attributes));
}
int ibv_query_port(ibv_context* context, std::uint8_t port, struct _compat_ibv_port_attr* attributes) {
  RDMACOMM_FRONT(ibv_query_port, soft(context), query_port_of_old(context, port, attributes),
                 (context, port, attributes));
}
int ibv_query_gid(ibv_context* context, std::uint8_t port, int index, ibv_gid* gid) {
  RDMACOMM_FRONT(ibv_query_gid, soft(context), query_gid(context, port, index, gid), (context, port, index, gid));
}
int _ibv_query_gid_ex(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry,
                      std::uint32_t flags, std::size_t size) {
  RDMACOMM_FRONT(_ibv_query_gid_ex, soft(context), query_gid_of_size(context, port, index, entry, flags, size),
                 (context, port, index, entry, flags, size));
}
ssize_t _ibv_query_gid_table(ibv_context* context, ibv_gid_entry* entries, std::size_t most, std::uint32_t flags,
                             std::size_t size) {
  RDMACOMM_FRONT(_ibv_query_gid_table, soft(context), query_gid_table(context, entries, most, flags, size),
                 (context, entries, most, flags, size));
}
int ibv_query_gid_type(ibv_context* context, std::uint8_t port, unsigned index, int* type) {
  RDMACOMM_FRONT(ibv_query_gid_type, soft(context), query_gid_type(context, port, index, type),
                 (context, port, index, type));
}
int ibv_query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  RDMACOMM_FRONT(ibv_query_pkey, soft(context), softdev::query_pkey(context, port, index, pkey),
                 (context, port, index, pkey));
}
int ibv_get_pkey_index(ibv_context* context, std::uint8_t port, __be16 pkey) {
  RDMACOMM_FRONT(ibv_get_pkey_index, soft(context), get_pkey_index(context, port, pkey), (context, port, pkey));
}
int ibv_get_async_event(ibv_context* context, ibv_async_event* event) {
  RDMACOMM_FRONT(ibv_get_async_event, soft(context), softdev::get_async_event(context, event), (context, event));
}
void ibv_ack_async_event(ibv_async_event* event) {
  RDMACOMM_FRONT(ibv_ack_async_event, of_soft0(event), softdev::ack_async_event(event), (event));
}

// ---- Protection domains and memory

ibv_pd* ibv_alloc_pd(ibv_context* context) {
  RDMACOMM_FRONT(ibv_alloc_pd, soft(context), softdev::alloc_pd(context), (context));
}
int ibv_dealloc_pd(ibv_pd* pd) {
  RDMACOMM_FRONT(ibv_dealloc_pd, soft(pd), softdev::dealloc_pd(pd), (pd));
}
ibv_pd* ibv_import_pd(ibv_context* context, std::uint32_t handle) {
  RDMACOMM_FRONT(ibv_import_pd, soft(context), refuse<ibv_pd*>(nullptr), (context, handle));
}
void ibv_unimport_pd(ibv_pd* pd) {
  RDMACOMM_FRONT(ibv_unimport_pd, soft(pd), void(), (pd));
}
ibv_mr* ibv_reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  RDMACOMM_FRONT(ibv_reg_mr, soft(pd), softdev::reg_mr(pd, address, length, access), (pd, address, length, access));
}
ibv_mr* ibv_reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  RDMACOMM_FRONT(ibv_reg_mr_iova, soft(pd), softdev::reg_mr_iova(pd, address, length, iova, access),
                 (pd, address, length, iova, access));
}
ibv_mr* ibv_reg_mr_iova2(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, unsigned access) {
  RDMACOMM_FRONT(ibv_reg_mr_iova2, soft(pd), softdev::reg_mr_iova(pd, address, length, iova, static_cast<int>(access)),
                 (pd, address, length, iova, access));
}
int ibv_rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  RDMACOMM_FRONT(ibv_rereg_mr, soft(mr), softdev::rereg_mr(mr, flags, pd, address, length, access),
                 (mr, flags, pd, address, length, access));
}
int ibv_dereg_mr(ibv_mr* mr) {
  RDMACOMM_FRONT(ibv_dereg_mr, soft(mr), softdev::dereg_mr(mr), (mr));
}
ibv_mr* ibv_import_mr(ibv_pd* pd, std::uint32_t handle) {
  RDMACOMM_FRONT(ibv_import_mr, soft(pd), refuse<ibv_mr*>(nullptr), (pd, handle));
}
void ibv_unimport_mr(ibv_mr* mr) {
  RDMACOMM_FRONT(ibv_unimport_mr, soft(mr), void(), (mr));
}

// ---- Completion queues

ibv_comp_channel* ibv_create_comp_channel(ibv_context* context) {
  RDMACOMM_FRONT(ibv_create_comp_channel, soft(context), softdev::create_comp_channel(context), (context));
}
int ibv_destroy_comp_channel(ibv_comp_channel* channel) {
  RDMACOMM_FRONT(ibv_destroy_comp_channel, soft(channel), softdev::destroy_comp_channel(channel), (channel));
}
ibv_cq* ibv_create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int vector) {
  RDMACOMM_FRONT(ibv_create_cq, soft(context), softdev::create_cq(context, depth, cq_context, channel, vector),
                 (context, depth, cq_context, channel, vector));
}
int ibv_resize_cq(ibv_cq* cq, int depth) {
  RDMACOMM_FRONT(ibv_resize_cq, soft(cq), softdev::resize_cq(cq, depth), (cq, depth));
}
int ibv_destroy_cq(ibv_cq* cq) {
  RDMACOMM_FRONT(ibv_destroy_cq, soft(cq), softdev::destroy_cq(cq), (cq));
}
int ibv_get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  RDMACOMM_FRONT(ibv_get_cq_event, soft(channel), softdev::get_cq_event(channel, cq, cq_context),
                 (channel, cq, cq_context));
}
void ibv_ack_cq_events(ibv_cq* cq, unsigned count) {
  RDMACOMM_FRONT(ibv_ack_cq_events, soft(cq), softdev::ack_cq_events(cq, count), (cq, count));
}

// ---- Queue pairs and shared receive queues

ibv_qp* ibv_create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  RDMACOMM_FRONT(ibv_create_qp, soft(pd), softdev::create_qp(pd, init), (pd, init));
}
ibv_qp_ex* ibv_qp_to_qp_ex(ibv_qp* qp) {
  RDMACOMM_FRONT(ibv_qp_to_qp_ex, soft(qp), softdev::qp_to_qp_ex(qp), (qp));
}
int ibv_modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  RDMACOMM_FRONT(ibv_modify_qp, soft(qp), with_errno(softdev::modify_qp(qp, attributes, mask)), (qp, attributes, mask));
}
int ibv_query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init) {
  RDMACOMM_FRONT(ibv_query_qp, soft(qp), softdev::query_qp(qp, attributes, mask, init), (qp, attributes, mask, init));
}
int ibv_destroy_qp(ibv_qp* qp) {
  RDMACOMM_FRONT(ibv_destroy_qp, soft(qp), softdev::destroy_qp(qp), (qp));
}
int ibv_set_ece(ibv_qp* qp, ibv_ece* ece) {
  RDMACOMM_FRONT(ibv_set_ece, soft(qp), EOPNOTSUPP, (qp, ece));
}
int ibv_query_ece(ibv_qp* qp, ibv_ece* ece) {
  RDMACOMM_FRONT(ibv_query_ece, soft(qp), EOPNOTSUPP, (qp, ece));
}
ibv_srq* ibv_create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes) {
  RDMACOMM_FRONT(ibv_create_srq, soft(pd), softdev::create_srq(pd, attributes), (pd, attributes));
}
int ibv_modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask) {
  RDMACOMM_FRONT(ibv_modify_srq, soft(srq), softdev::modify_srq(srq, attributes, mask), (srq, attributes, mask));
}
int ibv_query_srq(ibv_srq* srq, ibv_srq_attr* attributes) {
  RDMACOMM_FRONT(ibv_query_srq, soft(srq), softdev::query_srq(srq, attributes), (srq, attributes));
}
int ibv_destroy_srq(ibv_srq* srq) {
  RDMACOMM_FRONT(ibv_destroy_srq, soft(srq), softdev::destroy_srq(srq), (srq));
}

// ---- Addresses of datagrams

ibv_ah* ibv_create_ah(ibv_pd* pd, ibv_ah_attr* attributes) {
  RDMACOMM_FRONT(ibv_create_ah, soft(pd), softdev::create_ah(pd, attributes), (pd, attributes));
}
ibv_ah* ibv_create_ah_from_wc(ibv_pd* pd, ibv_wc* wc, ibv_grh* header, std::uint8_t port) {
  RDMACOMM_FRONT(ibv_create_ah_from_wc, soft(pd), softdev::create_ah_from_wc(pd, *wc, header, port),
                 (pd, wc, header, port));
}
int ibv_init_ah_from_wc(ibv_context* context, std::uint8_t port, ibv_wc* wc, ibv_grh* header, ibv_ah_attr* attributes) {
  RDMACOMM_FRONT(ibv_init_ah_from_wc, soft(context), softdev::init_ah_from_wc(context, port, *wc, header, *attributes),
                 (context, port, wc, header, attributes));
}
int ibv_destroy_ah(ibv_ah* ah) {
  RDMACOMM_FRONT(ibv_destroy_ah, soft(ah), softdev::destroy_ah(ah), (ah));
}
int ibv_attach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  RDMACOMM_FRONT(ibv_attach_mcast, soft(qp), softdev::attach_mcast(qp, gid, lid), (qp, gid, lid));
}
int ibv_detach_mcast(ibv_qp* qp, const ibv_gid* gid, std::uint16_t lid) {
  RDMACOMM_FRONT(ibv_detach_mcast, soft(qp), softdev::detach_mcast(qp, gid, lid), (qp, gid, lid));
}
int ibv_resolve_eth_l2_from_gid(ibv_context* context, ibv_ah_attr* attributes, std::uint8_t mac[6],
                                std::uint16_t* vlan) {
  RDMACOMM_FRONT(ibv_resolve_eth_l2_from_gid, soft(context), refuse(-1), (context, attributes, mac, vlan));
}
}
