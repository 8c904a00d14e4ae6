// The table of soft0's verbs.
#include "softdev/common/api.h"

#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

constexpr verbs::Api kApi = {
    .name = "softdev",
    .get_device_list = get_device_list,
    .free_device_list = free_device_list,
    .open_device = open_device,
    .close_device = close_device,
    .query_device = query_device,
    .query_device_ex = query_device_ex,
    .query_port = query_port,
    .query_gid_entry = query_gid_entry,
    .query_pkey = query_pkey,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_comp_channel = create_comp_channel,
    .destroy_comp_channel = destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .resize_cq = resize_cq,
    .get_cq_event = get_cq_event,
    .ack_cq_events = ack_cq_events,
    .create_qp = create_qp,
    .modify_qp = modify_qp,
    .query_qp = query_qp,
    .destroy_qp = destroy_qp,
    .create_srq = create_srq,
    .modify_srq = modify_srq,
    .query_srq = query_srq,
    .destroy_srq = destroy_srq,
    .get_async_event = get_async_event,
    .ack_async_event = ack_async_event,
    .allocate_memory = allocate_memory,
    .free_memory = free_memory,
};

}  // namespace

const verbs::Api& api() noexcept {
  return kApi;
}

}  // namespace rdmacomm::softdev
