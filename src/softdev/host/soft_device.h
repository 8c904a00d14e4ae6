// soft_device.h - the entry in the device list, and the answers to what programs ask about it.
#pragma once

#include <infiniband/verbs.h>

#include <memory>
#include <string>

namespace rdmacomm::softdev {

/// Who a soft device is, among those of one list.
struct DeviceIdentity {
  static constexpr unsigned kMaxDevices = 64;

  std::string name;
  unsigned index = 0;       ///< 0 to kMaxDevices - 1: makes its GUID and LID
  bool infiniband = false;  ///< what its port says of its link layer; else Ethernet
};

/// An ibv_device with room behind it: libibverbs' own devices are larger than the public part, and programs have
/// been seen to copy more than that. Shared by the device list and the contexts opened from it.
struct PaddedDevice : ibv_device {
  char padding[512] = {};
};
struct SoftDevice : PaddedDevice, std::enable_shared_from_this<SoftDevice> {
  explicit SoftDevice(DeviceIdentity identity);
  [[nodiscard]] const DeviceIdentity& identity() const noexcept { return identity_; }
  /// Whether it is one of this device's, and not one of the kernel's.
  [[nodiscard]] static bool is(const ibv_device* device) noexcept;

 private:
  const DeviceIdentity identity_;
};

void describe_device(const DeviceIdentity& identity, ibv_device_attr& attributes);
/// 0, or an errno value: the system does not tell what the host's network is like.
[[nodiscard]] int describe_port(const DeviceIdentity& identity, ibv_port_attr& attributes);

}  // namespace rdmacomm::softdev
