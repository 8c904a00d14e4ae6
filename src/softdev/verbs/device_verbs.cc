// The verbs of the device itself: lists, contexts, attributes and events.
#include <cerrno>
#include <memory>
#include <new>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "softdev/common/device_clock.h"
#include "softdev/common/device_limits.h"
#include "softdev/common/newer_numbers.h"
#include "softdev/context/soft_context.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/interface_names.h"
#include "softdev/host/soft_device.h"
#include "softdev/memory/application_memory.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

/// A list and its devices. A context keeps its device alive after the list is freed.
struct DeviceList {
  ibv_device* list[DeviceIdentity::kMaxDevices + 1] = {};
  std::vector<std::shared_ptr<SoftDevice>> devices;
};

/// rdma-core has the member since release 34.
template <typename Attributes>
void set_port_count(Attributes& attributes) {
  if constexpr (requires { attributes.phys_port_cnt_ex; })
    attributes.phys_port_cnt_ex = attributes.orig_attr.phys_port_cnt;
}

/// All memory of a process is paged, so every operation may use on-demand registrations.
void describe_paging(ibv_device_attr_ex& attributes) {
  constexpr std::uint32_t kMessages = IBV_ODP_SUPPORT_SEND | IBV_ODP_SUPPORT_RECV;
  constexpr std::uint32_t kReliable =
      kMessages | IBV_ODP_SUPPORT_WRITE | IBV_ODP_SUPPORT_READ | IBV_ODP_SUPPORT_ATOMIC | IBV_ODP_SUPPORT_SRQ_RECV;
  auto& transports = attributes.odp_caps.per_transport_caps;
  attributes.odp_caps.general_caps = IBV_ODP_SUPPORT | IBV_ODP_SUPPORT_IMPLICIT;
  transports.rc_odp_caps = kReliable | kPagedFlush | kPagedAtomicWrite;
  attributes.xrc_odp_caps = kReliable;
  transports.uc_odp_caps = kMessages | IBV_ODP_SUPPORT_WRITE;
  transports.ud_odp_caps = kMessages;
}

const DeviceIdentity& identity_of(ibv_context* context) {
  return SoftContext::from(context).identity();
}

}  // namespace

ibv_device** list_devices(std::span<const DeviceIdentity> identities) {
  begin_own_memory();
  auto* listed = new (std::nothrow) DeviceList;
  if (listed == nullptr) return fail<ibv_device*>(ENOMEM);
  for (const DeviceIdentity& identity : identities) {
    listed->devices.push_back(SoftDevice::with(identity));
    listed->list[listed->devices.size() - 1] = listed->devices.back().get();
  }
  return listed->list;
}

ibv_device** get_device_list(int* count) {
  std::vector<DeviceIdentity> identities;
  for (std::string& interface : wanted_interfaces()) {
    const auto index = static_cast<unsigned>(identities.size());
    identities.push_back({.name = default_name(index), .index = index, .interface = std::move(interface)});
  }
  if (identities.empty()) identities.push_back({.name = default_name(0)});
  if (count != nullptr) *count = static_cast<int>(identities.size());
  return list_devices(identities);
}

void free_device_list(ibv_device** list) {
  delete reinterpret_cast<DeviceList*>(list);
}

ibv_context* open_device(ibv_device* device) {
  SoftContext* context = SoftContext::open(static_cast<SoftDevice*>(device)->shared_from_this(), set_verbs);
  if (context == nullptr) return nullptr;
  if (context->faults() != nullptr) set_faulty_verbs(*context->verbs());
  return context->verbs();
}

int close_device(ibv_context* context) {
  // Like the kernel for its devices: objects that still exist become useless, and their small memory is leaked.
  SoftContext& soft = SoftContext::from(context);
  for (const auto& qp : soft.queue_pairs().all()) qp->destroy();
  // An initiator that is stopped in the middle of a request must find queues and registrations unchanged when it
  // continues and ends the request. The system frees the memory when no process maps it any more.
  soft.stragglers().sweep();
  if (soft.stragglers().any()) soft.segment().keep_contents();
  soft.shared_receive_queues().for_each([&soft](SoftSrq& srq) {
    soft.stragglers().forget(srq);
    soft.segment().free(srq.take_block());
  });
  soft.xrc_domains().for_each([](SoftXrcd& domain) { domain.detach_context(); });
  soft.completion_queues().for_each([&soft](SoftCq& cq) { soft.segment().free(cq.take_block()); });
  delete &soft;
  return 0;
}

int query_device(ibv_context* context, ibv_device_attr* attributes) {
  if (const int error = device_error(context); error != 0) return error;
  describe_device(identity_of(context), *attributes);
  return 0;
}

int query_device_ex(ibv_context* context, ibv_device_attr_ex* attributes) {
  if (const int error = device_error(context); error != 0) return error;
  *attributes = {};
  describe_device(identity_of(context), attributes->orig_attr);
  set_port_count(*attributes);
  // Its lower half repeats the flags of ibv_device_attr, as in the kernel.
  attributes->device_cap_flags_ex = attributes->orig_attr.device_cap_flags | kCanFlushGlobal | kCanWriteAtomically;
  describe_paging(*attributes);
  attributes->max_dm_size = kMaxDeviceMemory;
  attributes->completion_timestamp_mask = kClockMask;
  attributes->hca_core_clock = kClockKilohertz;
  return 0;
}

int query_rt_values(ibv_context* /*context*/, ibv_values_ex* values) {
  values->comp_mask &= IBV_VALUES_MASK_RAW_CLOCK;  // reports which values were found
  // All ticks are in tv_nsec, like in the hardware drivers, because programs compare it with ibv_wc_read_completion_ts.
  if (values->comp_mask != 0) values->raw_clock = {0, static_cast<long>(device_ticks())};
  return 0;
}

int query_port(ibv_context* context, std::uint8_t port, ibv_port_attr* attributes) {
  if (!identity_of(context).has_port(port)) return EINVAL;
  int error = refusal(context, FaultCall::kQueryPort);
  if (error == 0) error = describe_port(identity_of(context), port, *attributes);
  const DeviceFaults* const faults = SoftContext::from(context).faults();
  if (error == 0 && faults != nullptr && faults->link_is_down()) show_down(*attributes);
  return error;
}

int query_gid_entry(ibv_context* context, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  if (!identity_of(context).has_port(port)) return EINVAL;
  if (const int error = device_error(context); error != 0) return error;
  std::vector<ibv_gid_entry> table;
  if (const int error = SoftContext::from(context).gid_table(table); error != 0) return error;
  if (index >= table.size()) return ENODATA;
  *entry = at_port(table[index], port);
  return 0;
}

int query_pkey(ibv_context* context, std::uint8_t port, int index, __be16* pkey) {
  if (const int error = device_error(context); error != 0) return error;
  if (!identity_of(context).has_port(port) || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  return SoftContext::from(context).next_event(*event);
}

void ack_async_event(ibv_async_event* event) {
  switch (event->event_type) {
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: {
      SoftSrq& srq = SoftSrq::from(event->element.srq);
      return SoftContext::from(srq.context).events().acknowledge(srq.events);
    }
    case IBV_EVENT_CQ_ERR: {
      SoftCq& cq = SoftCq::from(event->element.cq);
      return SoftContext::from(event->element.cq->context).events().acknowledge(cq.events);
    }
    case IBV_EVENT_PORT_ACTIVE:
    case IBV_EVENT_PORT_ERR:
    case IBV_EVENT_LID_CHANGE:
    case IBV_EVENT_PKEY_CHANGE:
    case IBV_EVENT_SM_CHANGE:
    case IBV_EVENT_CLIENT_REREGISTER:
    case IBV_EVENT_DEVICE_FATAL:
    case IBV_EVENT_GID_CHANGE: return;  // events of the port and of the device, which are never destroyed
    default: {
      SoftQp& qp = SoftQp::from(event->element.qp);
      return SoftContext::from(qp.qp_base.context).events().acknowledge(qp.events);
    }
  }
}

}  // namespace rdmacomm::softdev
