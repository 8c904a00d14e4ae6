// soft_device.h - a device of the device list, and the attributes that it reports.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <memory>
#include <string>

namespace rdmacomm::softdev {

/// Identifies a soft device in its device list.
struct DeviceIdentity {
  static constexpr unsigned kMaxDevices = 64;
  static constexpr unsigned kMaxPorts = 4;

  std::string name;
  unsigned index = 0;       ///< 0 to kMaxDevices - 1: determines its GUID and LID
  bool infiniband = false;  ///< the link layer that its ports report; else Ethernet
  unsigned ports = 1;       ///< 1 to kMaxPorts
  /// The network interface that the device belongs to. It decides the GIDs and the state of the ports. Empty: none, so
  /// the device has the addresses of all interfaces. The interface need not exist.
  std::string interface {};

  [[nodiscard]] bool has_port(std::uint32_t port) const noexcept { return port >= 1 && port <= ports; }
  bool operator==(const DeviceIdentity&) const = default;
};

/// The name of the device with this index, unless another one was chosen: soft0, soft1 and so on.
[[nodiscard]] std::string default_name(unsigned index);

/// An ibv_device with padding after it. The devices of libibverbs are larger than the public part, and some programs
/// copy more than that part. The device list and the contexts opened from it share ownership.
struct PaddedDevice : ibv_device {
  char padding[512] = {};
};
struct SoftDevice : PaddedDevice, std::enable_shared_from_this<SoftDevice> {
  explicit SoftDevice(DeviceIdentity identity);
  /// The device with this identity. While a list or a context has it, this is always the same object, as in libibverbs:
  /// librdmacm compares the addresses of two lists to find new devices.
  /// Threads: any.
  [[nodiscard]] static std::shared_ptr<SoftDevice> with(const DeviceIdentity& identity);
  [[nodiscard]] const DeviceIdentity& identity() const noexcept { return identity_; }
  /// True if `device` is a soft device and not a kernel device.
  [[nodiscard]] static bool is(const ibv_device* device) noexcept;

 private:
  const DeviceIdentity identity_;
};

/// The speed of the port that describe_port() reports, in units of 100 Mbit/s: 4 lanes of HDR.
inline constexpr std::uint64_t kPortSpeed = 2000;

void describe_device(const DeviceIdentity& identity, ibv_device_attr& attributes);
/// The state of a port that is down.
void show_down(ibv_port_attr& attributes) noexcept;
/// port  one that the device has
/// Returns  0, or an errno value if the system does not report the state of the network.
[[nodiscard]] int describe_port(const DeviceIdentity& identity, unsigned port, ibv_port_attr& attributes);

}  // namespace rdmacomm::softdev
