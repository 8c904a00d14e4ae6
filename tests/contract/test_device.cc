#include "contract/test_device.h"

#include <algorithm>
#include <cstdlib>

#include "contract/pair_linker.h"
#include "rdmacomm/device.h"

namespace rdmacomm::contract {
namespace {

bool is_iwarp(const std::string& name) {
  const verbs::DeviceList devices(verbs::libibverbs_api());
  for (int i = 0; i < devices.size(); ++i) {
    if (name == devices[i]->name) return devices[i]->transport_type == IBV_TRANSPORT_IWARP;
  }
  return false;
}

}  // namespace

std::string environment(const char* name, const std::string& otherwise) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? otherwise : value;
}

TestDevice TestDevice::own() {
  return {environment("RDMACOMM_TEST_DEVICE", "soft0"), environment("RDMACOMM_TEST_ADDRESS")};
}

TestDevice TestDevice::peers() {
  const TestDevice first = own();
  return {environment("RDMACOMM_TEST_PEER_DEVICE", first.name),
          environment("RDMACOMM_TEST_PEER_ADDRESS", first.address)};
}

std::string TestDevice::why_not() const {
  const auto devices = list_devices();
  std::string names;
  for (const DeviceInfo& device : devices) {
    if (device.name == name) return {};
    names += " " + device.name;
  }
  return "no RDMA device \"" + name + "\" here, only" + names;
}

testing::DeviceChoice TestDevice::choice() const {
  return {name, links_by_cm() ? &cm_linked_api() : nullptr};
}

bool links_by_cm() {
  const std::string wanted = environment("RDMACOMM_TEST_LINK");
  return wanted.empty() ? is_iwarp(TestDevice::own().name) : wanted == "cm";
}

unsigned rounds(unsigned count) {
  const std::string percent = environment("RDMACOMM_TEST_ROUNDS", "100");
  return std::max(1U, static_cast<unsigned>(count * std::strtoul(percent.c_str(), nullptr, 10) / 100));
}

ibv_device_attr attributes_of(const DeviceCore& device) {
  ibv_device_attr attributes{};
  EXPECT_EQ(device.api().query_device(device.context(), &attributes), 0);
  return attributes;
}

DeviceKind kind_of(const DeviceCore& device) {
  return kind_of(device.is_software(), device.context()->device->transport_type, attributes_of(device));
}

}  // namespace rdmacomm::contract
