// The Api for kernel devices: libibverbs, one entry for each verb.
#include <sys/mman.h>

#include <cerrno>

#include "verbs/api.h"

namespace rdmacomm::verbs {
namespace {

std::size_t mapped_length(std::size_t length, bool huge_pages) {
  const std::size_t page = huge_pages ? std::size_t{2} << 20 : 4096;
  return (length + page - 1) / page * page;
}

void* allocate_anonymous(ibv_context* /*context*/, std::size_t length, bool huge_pages) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (huge_pages ? MAP_HUGETLB : 0);
  void* address = mmap(nullptr, mapped_length(length, huge_pages), PROT_READ | PROT_WRITE, flags, -1, 0);
  if (address == MAP_FAILED) return nullptr;
  // A child must not share pages that a NIC writes to. After a fork, copy-on-write could move the parent's page, and
  // the NIC would keep writing to the registered one.
  madvise(address, mapped_length(length, huge_pages), MADV_DONTFORK);
  return address;
}

void free_anonymous(ibv_context* /*context*/, void* address, std::size_t length, bool huge_pages) {
  munmap(address, mapped_length(length, huge_pages));
}

// These are macros or inline functions in verbs.h, so each needs a function that a pointer can point to.
int query_device_ex(ibv_context* context, ibv_device_attr_ex* attributes) {
  return ibv_query_device_ex(context, nullptr, attributes);
}
int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  return ibv_query_port(context, port, attributes);
}
int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  return ibv_query_gid_ex(context, port, index, entry, 0);
}
ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return ibv_reg_mr(pd, address, length, access);
}
void ack_cq_events(ibv_cq* cq, unsigned count) {
  ibv_ack_cq_events(cq, count);
}

constexpr Api kApi = {
    .name = "libibverbs",
    .get_device_list = ibv_get_device_list,
    .free_device_list = ibv_free_device_list,
    .open_device = ibv_open_device,
    .close_device = ibv_close_device,
    .query_device = ibv_query_device,
    .query_device_ex = query_device_ex,
    .query_port = query_port,
    .query_gid_entry = query_gid_entry,
    .query_pkey = ibv_query_pkey,
    .alloc_pd = ibv_alloc_pd,
    .dealloc_pd = ibv_dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = ibv_dereg_mr,
    .create_comp_channel = ibv_create_comp_channel,
    .destroy_comp_channel = ibv_destroy_comp_channel,
    .create_cq = ibv_create_cq,
    .destroy_cq = ibv_destroy_cq,
    .resize_cq = ibv_resize_cq,
    .get_cq_event = ibv_get_cq_event,
    .ack_cq_events = ack_cq_events,
    .create_qp = ibv_create_qp,
    .modify_qp = ibv_modify_qp,
    .query_qp = ibv_query_qp,
    .destroy_qp = ibv_destroy_qp,
    .create_srq = ibv_create_srq,
    .modify_srq = ibv_modify_srq,
    .query_srq = ibv_query_srq,
    .destroy_srq = ibv_destroy_srq,
    .get_async_event = ibv_get_async_event,
    .ack_async_event = ibv_ack_async_event,
    .allocate_memory = allocate_anonymous,
    .free_memory = free_anonymous,
};

}  // namespace

const Api& libibverbs_api() noexcept {
  return kApi;
}

}  // namespace rdmacomm::verbs
