// soft_verbs.h - the verbs of soft0, one function each, with the error conventions of libibverbs.
#pragma once

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <span>

#include "softdev/faults/fault_plan.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {

/// For verbs that return a pointer.
template <typename T>
T* fail(int error) {
  errno = error;
  return nullptr;
}

// The device
/// Makes a list of soft devices, at most DeviceIdentity::kMaxDevices, for free_device_list().
ibv_device** list_devices(std::span<const DeviceIdentity> identities);
ibv_device** get_device_list(int* count);
void free_device_list(ibv_device** list);
/// As SoftContext::SetVerbs.
void set_verbs(verbs_context& context);
/// For a context with faults, after set_verbs(): calls fail when the device has failed.
void set_faulty_verbs(ibv_context& context);
/// Counts a call for the faults of a context. Returns 0, or the errno value that the call fails with.
[[nodiscard]] int refusal(ibv_context* context, FaultCall call);
/// EIO if the device has failed, for calls that rules do not name; else 0.
[[nodiscard]] int device_error(ibv_context* context);
ibv_context* open_device(ibv_device* device);
int close_device(ibv_context* context);
int query_device(ibv_context* context, ibv_device_attr* attributes);
int query_device_ex(ibv_context* context, ibv_device_attr_ex* attributes);
/// As ibv_query_rt_values_ex.
int query_rt_values(ibv_context* context, ibv_values_ex* values);
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry);
int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey);

// Protection domains and memory
ibv_pd* alloc_pd(ibv_context* context);
ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes);
int dealloc_pd(ibv_pd* pd);
ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes);
int dealloc_td(ibv_td* td);
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access);
/// Requests use `iova` for `address`.
ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access);
/// A registration of no memory: it reads as zeroes, and discards written bytes, at any address.
ibv_mr* alloc_null_mr(ibv_pd* pd);
/// EOPNOTSUPP: the memory of `fd` cannot be mapped.
ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access);
/// As ibv_rereg_mr. Returns 0, or an ibv_rereg_mr_err_code and errno. The keys do not change.
int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access);
/// As ibv_advise_mr: loads pages of on-demand registrations. Always waits until they are loaded.
int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* slices, std::uint32_t count);
int dereg_mr(ibv_mr* mr);
/// Device memory. A registration of it is zero-based.
ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes);
int free_dm(ibv_dm* dm);
ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access);
ibv_mw* alloc_mw(ibv_pd* pd, ibv_mw_type type);
int dealloc_mw(ibv_mw* mw);
/// For a window of type 1. Its key changes with the call.
int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind);
void* allocate_memory(ibv_context* context, std::size_t length, bool huge_pages);
void free_memory(ibv_context* context, void* address, std::size_t length, bool huge_pages);

// Completion queues and channels
ibv_comp_channel* create_comp_channel(ibv_context* context);
int destroy_comp_channel(ibv_comp_channel* channel);
ibv_cq* create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int vector);
ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init);
int resize_cq(ibv_cq* cq, int depth);
int destroy_cq(ibv_cq* cq);
int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
void ack_cq_events(ibv_cq* cq, unsigned count);

// Queue pairs
ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init);
ibv_qp* create_qp_ex(ibv_context* context, ibv_qp_init_attr_ex* init);
/// The queue pair for the ibv_wr_* calls; nullptr: it was not created for them.
ibv_qp_ex* qp_to_qp_ex(ibv_qp* qp);
int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
int destroy_qp(ibv_qp* qp);
ibv_srq* create_srq(ibv_pd* pd, ibv_srq_init_attr* attributes);
int modify_srq(ibv_srq* srq, ibv_srq_attr* attributes, int mask);
int query_srq(ibv_srq* srq, ibv_srq_attr* attributes);
int destroy_srq(ibv_srq* srq);

// XRC
ibv_xrcd* open_xrcd(ibv_context* context, ibv_xrcd_init_attr* init);
int close_xrcd(ibv_xrcd* xrcd);
/// Also for XRC. A basic one is made by create_srq().
ibv_srq* create_srq_ex(ibv_context* context, ibv_srq_init_attr_ex* init);
int get_srq_num(ibv_srq* srq, std::uint32_t* number);
/// Returns another handle of a queue pair of this context: the same pointer.
ibv_qp* open_qp(ibv_context* context, ibv_qp_open_attr* wanted);

// Addresses of datagrams
ibv_ah* create_ah(ibv_pd* pd, ibv_ah_attr* attributes);
ibv_ah* create_ah_from_wc(ibv_pd* pd, const ibv_wc& wc, const ibv_grh* header, std::uint8_t port);
int init_ah_from_wc(ibv_context* context, std::uint8_t port, const ibv_wc& wc, const ibv_grh* header,
                    ibv_ah_attr& attributes);
int destroy_ah(ibv_ah* ah);
int attach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);
int detach_mcast(ibv_qp* qp, const ibv_gid* group, std::uint16_t lid);

// Asynchronous events
int get_async_event(ibv_context* context, ibv_async_event* event);
void ack_async_event(ibv_async_event* event);

}  // namespace rdmacomm::softdev
