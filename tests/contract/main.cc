// The contract suite's main function: selects the devices of the run.
//
//   contract_tests              uses the devices that the environment names (test_device.h); default soft0
//   contract_tests --soft0      uses soft0 and ignores the environment
//   contract_tests --hardware   uses the devices that the environment names; exit status 77 if it names none, 1 if they
//                               do not exist
#include <gtest/gtest.h>

#include <cstdlib>
#include <iostream>
#include <string_view>

#include "contract/test_device.h"

namespace {

using rdmacomm::contract::environment;
using rdmacomm::contract::TestDevice;

constexpr int kSkipped = 77;  // SKIP_RETURN_CODE in CMakeLists.txt

/// Whether the requested devices exist; names a missing one on standard error.
bool are_there() {
  for (const TestDevice& device : {TestDevice::own(), TestDevice::peers()}) {
    if (const std::string reason = device.why_not(); !reason.empty()) {
      std::cerr << "contract_tests: " << reason << "; RDMACOMM_TEST_DEVICE or RDMACOMM_TEST_PEER_DEVICE names it\n";
      return false;
    }
  }
  return true;
}

}  // namespace

int main(int argc, char** argv) {
  ::testing::InitGoogleTest(&argc, argv);
  const std::string_view mode = argc > 1 ? argv[1] : "";
  if (mode == "--soft0") {
    for (const char* name : {"RDMACOMM_TEST_DEVICE", "RDMACOMM_TEST_PEER_DEVICE", "RDMACOMM_TEST_ADDRESS",
                             "RDMACOMM_TEST_PEER_ADDRESS", "RDMACOMM_TEST_LINK", "RDMACOMM_TEST_MAY_BREAK_LINK"}) {
      unsetenv(name);
    }
  }
  if (mode == "--hardware") {
    if (environment("RDMACOMM_TEST_DEVICE").empty()) {
      std::cout << "skipped: RDMACOMM_TEST_DEVICE is not set\n";
      return kSkipped;
    }
    if (!are_there()) return 1;
  }
  if (!GTEST_FLAG_GET(list_tests)) {
    std::cout << "contract suite on " << TestDevice::own().name << " and " << TestDevice::peers().name
              << ", connected by " << (rdmacomm::contract::links_by_cm() ? "rdma_cm" : "modify_qp") << '\n';
  }
  return RUN_ALL_TESTS();
}
