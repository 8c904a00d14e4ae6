// The verbs of devices: one list of kernel devices followed by soft devices.
#include <endian.h>
#include <infiniband/verbs.h>

#include <atomic>
#include <cerrno>
#include <cstddef>
#include <cstdlib>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>

#include "base/logging.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/soft_device.h"
#include "softdev/preload/files/view.h"
#include "softdev/preload/next.h"
#include "softdev/preload/open_failure.h"
#include "softdev/preload/statistics.h"
#include "softdev/preload/wanted_devices.h"
#include "softdev/verbs/soft_verbs.h"

#undef ibv_get_device_list

namespace {

namespace softdev = rdmacomm::softdev;

/// The lists that a program has, each with the two lists that it was made from. A program's list is a block of malloc,
/// because some programs (qperf 0.4) end its use with free().
/// Threads: any.
class MergedLists {
 public:
  struct Parts {
    ibv_device** kernels = nullptr;
    ibv_device** softs = nullptr;
  };

  void insert(ibv_device** list, const Parts& parts) {
    const std::scoped_lock lock(mutex_);
    lists_[list] = parts;  // an earlier list at this address was freed without ibv_free_device_list()
  }
  /// Returns nothing for a list that is not in the table.
  std::optional<Parts> take(ibv_device** list) {
    const std::scoped_lock lock(mutex_);
    const auto node = lists_.extract(list);
    return node.empty() ? std::nullopt : std::optional(node.mapped());
  }

 private:
  std::mutex mutex_;
  std::unordered_map<ibv_device**, Parts> lists_;
};

MergedLists& merged_lists() {
  static auto& lists = *new MergedLists;  // never destroyed: a program may free a list when it exits
  return lists;
}

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

/// The installed libibverbs must not see the files of soft devices: it has no driver for them.
ibv_device** list_by_system(ibv_device** (*list)(int*)) {
  const rdmacomm::softdev::preload::ViewOff off;
  return list(nullptr);
}

/// Names the files that soft devices have in the view. Other lists may have the same devices, so a name that is correct
/// is not written again.
void name_nodes(ibv_device** softs) {
  if (length(softs) == 0) return;
  static auto& mutex = *new std::mutex;
  const std::scoped_lock lock(mutex);
  const auto system = rdmacomm::softdev::preload::read_system();
  for (std::size_t i = 0; i < length(softs); ++i) {
    ibv_device& device = *softs[i];
    const unsigned index = static_cast<const softdev::SoftDevice&>(device).identity().index;
    const std::string name = rdmacomm::softdev::preload::verbs_name(system, index);
    if (name == device.dev_name) continue;
    std::snprintf(device.dev_name, sizeof(device.dev_name), "%s", name.c_str());
    std::snprintf(device.dev_path, sizeof(device.dev_path), "/sys/class/infiniband_verbs/%s", device.dev_name);
  }
}

ibv_context* open_soft(ibv_device* device) {
  softdev::preload::print_statistics_at_exit();
  ibv_context* const context = softdev::open_device(device);
  if (context == nullptr) {
    const int error = errno;
    static std::atomic_flag is_said;  // some programs try again and again
    if (!is_said.test_and_set()) RDMACOMM_LOG(ERROR) << softdev::preload::describe_open_failure(device->name, error);
    errno = error;
  }
  return context;
}

}  // namespace

extern "C" {

ibv_device** ibv_get_device_list(int* count) {
  // Without the kernel modules, libibverbs has no list and returns ENOSYS. Then the list has only soft devices.
  static auto* const behind = rdmacomm::softdev::preload::next<decltype(ibv_get_device_list)>("ibv_get_device_list");
  ibv_device** const kernels = behind == nullptr ? nullptr : list_by_system(behind);
  ibv_device** const softs = softdev::list_devices(rdmacomm::softdev::preload::wanted_devices());
  name_nodes(softs);
  const std::size_t found = length(kernels) + length(softs);
  auto** const merged = static_cast<ibv_device**>(std::calloc(found + 1, sizeof(ibv_device*)));
  if (merged == nullptr) {
    errno = ENOMEM;
    return nullptr;
  }
  ibv_device** to = merged;
  for (ibv_device** list : {kernels, softs}) {
    for (std::size_t i = 0; i < length(list); ++i) *to++ = list[i];
  }
  merged_lists().insert(merged, {kernels, softs});
  if (count != nullptr) *count = static_cast<int>(found);
  errno = 0;
  return merged;
}

void ibv_free_device_list(ibv_device** list) {
  static auto* const behind = rdmacomm::softdev::preload::next<decltype(ibv_free_device_list)>("ibv_free_device_list");
  const auto parts = merged_lists().take(list);
  if (!parts) return;
  if (parts->kernels != nullptr) behind(parts->kernels);
  if (parts->softs != nullptr) softdev::free_device_list(parts->softs);
  std::free(list);
}

ibv_context* ibv_open_device(ibv_device* device) {
  RDMACOMM_FRONT(ibv_open_device, soft(device), open_soft(device), (device));
}
__be64 ibv_get_device_guid(ibv_device* device) {
  RDMACOMM_FRONT(ibv_get_device_guid, soft(device), guid_of(device), (device));
}
int ibv_get_device_index(ibv_device* device) {
  // The kernel numbers its own devices from 0. Soft devices have no such number.
  RDMACOMM_FRONT(ibv_get_device_index, soft(device), -1, (device));
}
}
