// soft_device.h - the entry in the device list, and the answers to what programs ask about it.
#pragma once

#include <infiniband/verbs.h>

#include <memory>

namespace rdmacomm::softdev {

/// An ibv_device with room behind it: libibverbs' own devices are larger than the public part, and programs have
/// been seen to copy more than that. Shared by the device list and the contexts opened from it.
struct PaddedDevice : ibv_device {
  char padding[512] = {};
};
struct SoftDevice : PaddedDevice, std::enable_shared_from_this<SoftDevice> {
  SoftDevice();
};

void describe_device(ibv_device_attr& attributes);
void describe_port(ibv_port_attr& attributes);

}  // namespace rdmacomm::softdev
