// test_device.h - the devices that the contract tests run on, from the environment.
//
//   RDMACOMM_TEST_DEVICE         the device, "soft0" where it is not set
//   RDMACOMM_TEST_PEER_DEVICE    the other end's; the same device where it is not set
//   RDMACOMM_TEST_ADDRESS        the device's IP address, where connections are made by rdma_cm
//   RDMACOMM_TEST_PEER_ADDRESS   the other end's
//   RDMACOMM_TEST_LINK           "cm" or "modify": how queue pairs are connected; where it is not set, the device
//                                decides
//   RDMACOMM_TEST_ROUNDS         percent of the rounds of long tests, 100 where it is not set: for emulated machines
//   RDMACOMM_TEST_MAY_BREAK_LINK the device's network interface, if the tests may take it down and remove the device
#pragma once

#include <string>

#include "contract/device_traits.h"
#include "device/device_core.h"
#include "support/connected_pair.h"

namespace rdmacomm::contract {

/// The value of an environment variable; `otherwise` where it is not set or empty.
[[nodiscard]] std::string environment(const char* name, const std::string& otherwise = {});

/// One end's device. A value.
struct TestDevice {
  std::string name;
  std::string address;  ///< empty: not known

  [[nodiscard]] static TestDevice own();
  [[nodiscard]] static TestDevice peers();
  /// Why it cannot be used ("no such device: ..."); empty: it can.
  [[nodiscard]] std::string why_not() const;
  /// How to open it; by a table that suits how it is linked (see pair_linker.h).
  [[nodiscard]] testing::DeviceChoice choice() const;
};

/// Whether queue pairs of this machine's test device are connected by rdma_cm.
[[nodiscard]] bool links_by_cm();
/// `count` rounds, or fewer on a machine that RDMACOMM_TEST_ROUNDS calls slow; at least 1.
[[nodiscard]] unsigned rounds(unsigned count);

[[nodiscard]] ibv_device_attr attributes_of(const DeviceCore& device);
[[nodiscard]] DeviceKind kind_of(const DeviceCore& device);

}  // namespace rdmacomm::contract
