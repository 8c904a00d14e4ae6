// api.h - the control verbs as a table of function pointers, so that another implementation can replace libibverbs.
// Layer: verbs.
//
// In <infiniband/verbs.h> ibv_post_send, ibv_post_recv, ibv_post_srq_recv, ibv_poll_cq and ibv_req_notify_cq are inline
// calls through ibv_context::ops. They therefore reach every device, with a kernel driver or in user space, without
// this table. All other verbs enter libibverbs, which knows only the kernel's devices, and the library calls them
// through this table. It has two instances: libibverbs_api(), and softdev::api() for the software device. Each entry
// behaves as the man page of the verb of the same name says, including how it reports errno (see call.h).
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

namespace rdmacomm::verbs {

/// A table of the control verbs. A value that lives as long as the program. Threads: any, as for the verbs.
struct Api {
  const char* name;  ///< "libibverbs" or "softdev", for messages

  ibv_device** (*get_device_list)(int* count);
  void (*free_device_list)(ibv_device** list);
  ibv_context* (*open_device)(ibv_device* device);
  int (*close_device)(ibv_context* context);

  int (*query_device)(ibv_context* context, ibv_device_attr* attributes);
  /// As query_device, and more: on-demand paging. All zeroes beyond orig_attr if the device reports nothing more.
  int (*query_device_ex)(ibv_context* context, ibv_device_attr_ex* attributes);
  int (*query_port)(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes);
  int (*query_gid_entry)(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry);
  int (*query_pkey)(ibv_context* context, std::uint8_t port, int index, __be16* pkey);

  ibv_pd* (*alloc_pd)(ibv_context* context);
  int (*dealloc_pd)(ibv_pd* pd);
  ibv_mr* (*reg_mr)(ibv_pd* pd, void* address, std::size_t length, int access);
  int (*dereg_mr)(ibv_mr* mr);

  ibv_comp_channel* (*create_comp_channel)(ibv_context* context);
  int (*destroy_comp_channel)(ibv_comp_channel* channel);
  ibv_cq* (*create_cq)(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int vector);
  int (*destroy_cq)(ibv_cq* cq);
  int (*resize_cq)(ibv_cq* cq, int depth);
  int (*get_cq_event)(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context);
  void (*ack_cq_events)(ibv_cq* cq, unsigned count);

  ibv_qp* (*create_qp)(ibv_pd* pd, ibv_qp_init_attr* attributes);
  int (*modify_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask);
  int (*query_qp)(ibv_qp* qp, ibv_qp_attr* attributes, int mask, ibv_qp_init_attr* init);
  int (*destroy_qp)(ibv_qp* qp);

  ibv_srq* (*create_srq)(ibv_pd* pd, ibv_srq_init_attr* attributes);
  int (*modify_srq)(ibv_srq* srq, ibv_srq_attr* attributes, int mask);
  int (*query_srq)(ibv_srq* srq, ibv_srq_attr* attributes);
  int (*destroy_srq)(ibv_srq* srq);

  int (*get_async_event)(ibv_context* context, ibv_async_event* event);
  void (*ack_async_event)(ibv_async_event* event);

  /// Zeroed, page-aligned memory of the kind that this device accesses best, not yet registered: private anonymous
  /// memory for hardware, memory that peers can map for the software device. Not inherited by fork().
  /// length  > 0 bytes, rounded up to whole pages. huge_pages: from the huge page pool, or fail.
  /// Returns the address, or nullptr with errno set (ENOMEM: no memory, or no huge pages left).
  void* (*allocate_memory)(ibv_context* context, std::size_t length, bool huge_pages);
  /// Frees memory from allocate_memory(), with the same `length` and `huge_pages`. Call it after dereg_mr and before
  /// close_device.
  void (*free_memory)(ibv_context* context, void* address, std::size_t length, bool huge_pages);
};

/// The kernel's devices, through libibverbs.
[[nodiscard]] const Api& libibverbs_api() noexcept;

}  // namespace rdmacomm::verbs
