// The verbs of the device itself: lists, contexts, what it says of itself, its events.
#include <cerrno>
#include <memory>
#include <new>

#include "softdev/gid_table.h"
#include "softdev/soft_context.h"
#include "softdev/soft_device.h"
#include "softdev/soft_qp.h"
#include "softdev/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

/// The list and its one device; contexts keep the device beyond the list.
struct ListedDevice {
  ibv_device* list[2] = {nullptr, nullptr};
  std::shared_ptr<SoftDevice> device = std::make_shared<SoftDevice>();
};

}  // namespace

ibv_device** get_device_list(int* count) {
  auto* listed = new (std::nothrow) ListedDevice;
  if (listed == nullptr) return fail<ibv_device*>(ENOMEM);
  listed->list[0] = listed->device.get();
  if (count != nullptr) *count = 1;
  return listed->list;
}

void free_device_list(ibv_device** list) {
  delete reinterpret_cast<ListedDevice*>(list);
}

ibv_context* open_device(ibv_device* device) {
  SoftContext* context = SoftContext::open(static_cast<SoftDevice*>(device)->shared_from_this());
  return context == nullptr ? nullptr : context->verbs();
}

int close_device(ibv_context* context) {
  SoftContext& soft = SoftContext::from(context);
  if (soft.objects.load() != 0) return EBUSY;
  delete &soft;
  return 0;
}

int query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  describe_device(*attributes);
  return 0;
}

int query_device_ex(ibv_context* /*context*/, ibv_device_attr_ex* attributes) {
  *attributes = {};
  describe_device(attributes->orig_attr);
  attributes->phys_port_cnt_ex = attributes->orig_attr.phys_port_cnt;
  return 0;
}

int query_port(ibv_context* /*context*/, std::uint8_t port, ibv_port_attr* attributes) {
  if (port != 1) return EINVAL;
  describe_port(*attributes);
  return 0;
}

int query_gid_entry(ibv_context* /*context*/, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  const auto table = gid_table();
  if (port != 1) return EINVAL;
  if (index >= table.size()) return ENODATA;
  *entry = table[index];
  return 0;
}

int query_pkey(ibv_context* /*context*/, std::uint8_t port, int index, __be16* pkey) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  return SoftContext::from(context).events().get(*event);
}

void ack_async_event(ibv_async_event* event) {
  SoftContext::from(event->element.qp->context).events().acknowledge(*event);
}

}  // namespace rdmacomm::softdev
