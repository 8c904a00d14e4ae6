// The verbs of devices: one list of kernel devices followed by soft devices.
#include <endian.h>
#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>
#include <cstdlib>

#include "softdev/host/gid_table.h"
#include "softdev/host/soft_device.h"
#include "softdev/preload/next.h"
#include "softdev/preload/statistics.h"
#include "softdev/preload/wanted_devices.h"
#include "softdev/verbs/soft_verbs.h"

#undef ibv_get_device_list

namespace {

namespace softdev = rdmacomm::softdev;

/// The list for the program, with the two lists that it was made from.
struct MergedList {
  ibv_device** kernels;
  ibv_device** softs;
  ibv_device* devices[1];  // the first of them; the rest and a nullptr follow
};

std::size_t length(ibv_device** list) {
  std::size_t count = 0;
  while (list != nullptr && list[count] != nullptr) ++count;
  return count;
}

bool soft(const ibv_device* device) noexcept {
  return softdev::SoftDevice::is(device);
}

__be64 guid_of(const ibv_device* device) {
  return htobe64(softdev::device_guid(static_cast<const softdev::SoftDevice*>(device)->identity().index));
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  // Without the kernel modules, libibverbs has no list and returns ENOSYS. Then the list has only soft devices.
  static auto* const behind = rdmacomm::softdev::preload::next<decltype(ibv_get_device_list)>("ibv_get_device_list");
  ibv_device** const kernels = behind == nullptr ? nullptr : behind(nullptr);
  ibv_device** const softs = softdev::list_devices(rdmacomm::softdev::preload::wanted_devices());
  const std::size_t found = length(kernels) + length(softs);
  auto* const merged = static_cast<MergedList*>(std::calloc(1, sizeof(MergedList) + found * sizeof(ibv_device*)));
  if (merged == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  merged->kernels = kernels;
  merged->softs = softs;
  ibv_device** to = merged->devices;
  for (ibv_device** list : {kernels, softs}) {
    for (std::size_t i = 0; i < length(list); ++i) *to++ = list[i];
  }
  if (count != nullptr) *count = static_cast<int>(found);
  errno = 0;
  return merged->devices;
}

void ibv_free_device_list(ibv_device** list) {
  static auto* const behind = rdmacomm::softdev::preload::next<decltype(ibv_free_device_list)>("ibv_free_device_list");
  auto* const merged =
      reinterpret_cast<MergedList*>(reinterpret_cast<std::byte*>(list) - offsetof(MergedList, devices));
  if (merged->kernels != nullptr) behind(merged->kernels);
  if (merged->softs != nullptr) softdev::free_device_list(merged->softs);
  std::free(merged);
}

ibv_context* ibv_open_device(ibv_device* device) {
  if (soft(device)) softdev::preload::print_statistics_at_exit();
  RDMACOMM_FRONT(ibv_open_device, soft(device), softdev::open_device(device), (device));
}
__be64 ibv_get_device_guid(ibv_device* device) {
  RDMACOMM_FRONT(ibv_get_device_guid, soft(device), guid_of(device), (device));
}
int ibv_get_device_index(ibv_device* device) {
  // The kernel numbers its own devices from 0. Soft devices have no such number.
  RDMACOMM_FRONT(ibv_get_device_index, soft(device), -1, (device));
}
}
