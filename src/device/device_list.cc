#include "rdmacomm/device/device_list.h"

#include "rdmacomm/softdev/softdev.h"
#include "rdmacomm/verbs/handles.h"

namespace rdmacomm {

bool DeviceInfo::is_software() const {
  return api == &softdev::api();
}

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices;
  for (const verbs::Api* api : {&verbs::libibverbs_api(), &softdev::api()}) {
    const verbs::DeviceList list(*api);
    for (int i = 0; i < list.size(); ++i) devices.push_back({list[i]->name, api});
  }
  return devices;
}

}  // namespace rdmacomm
