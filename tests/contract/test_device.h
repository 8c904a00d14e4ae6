// test_device.h - the devices that the contract tests run on, from the environment.
//
//   RDMACOMM_TEST_DEVICE         the device; default "soft0"
//   RDMACOMM_TEST_PEER_DEVICE    the peer's device; default: the same device
//   RDMACOMM_TEST_ADDRESS        the device's IP address, if connections are made by rdma_cm
//   RDMACOMM_TEST_PEER_ADDRESS   the peer device's IP address
//   RDMACOMM_TEST_LINK           "cm" or "modify": how queue pairs are connected; default: depends on the device
//   RDMACOMM_TEST_ROUNDS         percent of the rounds of long tests, default 100: for emulated machines
//   RDMACOMM_TEST_MAY_BREAK_LINK the device's network interface, if the tests may take it down and remove the device
#pragma once

#include <string>

#include "contract/device_traits.h"
#include "device/device_core.h"
#include "support/connected_pair.h"

namespace rdmacomm::contract {

/// The value of an environment variable; `otherwise` if it is not set or empty.
[[nodiscard]] std::string environment(const char* name, const std::string& otherwise = {});

/// The device of one end. A value.
struct TestDevice {
  std::string name;
  std::string address;  ///< empty: unknown

  [[nodiscard]] static TestDevice own();
  [[nodiscard]] static TestDevice peers();
  /// The reason why it cannot be used ("no such device: ..."); empty if it can.
  [[nodiscard]] std::string why_not() const;
  /// The device and the verbs table that suits the way it is linked (see pair_linker.h).
  [[nodiscard]] testing::DeviceChoice choice() const;
};

/// Whether rdma_cm connects queue pairs of the device under test.
[[nodiscard]] bool links_by_cm();
/// Returns `count`, or less if RDMACOMM_TEST_ROUNDS says that the machine is slow; at least 1.
[[nodiscard]] unsigned rounds(unsigned count);

[[nodiscard]] ibv_device_attr attributes_of(const DeviceCore& device);
[[nodiscard]] DeviceKind kind_of(const DeviceCore& device);

}  // namespace rdmacomm::contract
