#include "rdmacomm/device.h"
#include "softdev/common/api.h"
#include "verbs/handles.h"

namespace rdmacomm {

std::vector<DeviceInfo> list_devices() {
  std::vector<DeviceInfo> devices;
  for (const verbs::Api* api : {&verbs::libibverbs_api(), &softdev::api()}) {
    const verbs::DeviceList list(*api);
    for (int i = 0; i < list.size(); ++i) {
      devices.push_back({.name = list[i]->name, .is_software = api == &softdev::api()});
    }
  }
  return devices;
}

}  // namespace rdmacomm
