// The list of network interfaces in the environment, and the devices that it makes.
#include "softdev/host/interface_names.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <vector>

#include "rdmacomm/softdev.h"
#include "softdev/context/settings.h"
#include "softdev/verbs/raw_verbs.h"
#include "support/environment_variable.h"

namespace rdmacomm::softdev::test {
namespace {

using rdmacomm::testing::EnvironmentVariable;
using Names = std::vector<std::string>;

TEST(InterfaceNames, AreSeparatedByCommas) {
  const struct {
    const char* text;
    Names names;
  } cases[] = {{"", {}},
               {"lo", {"lo"}},
               {"eth0,eth1.100,br-0", {"eth0", "eth1.100", "br-0"}},
               {"eth0,,lo", {"eth0", "", "lo"}},
               {",", {""}},
               {"fifteen_letters", {"fifteen_letters"}}};
  for (const auto& [text, expected] : cases) {
    Names names{"old"};
    EXPECT_TRUE(read_interface_names(text, names)) << text;
    EXPECT_EQ(names, expected) << text;
  }
}

TEST(InterfaceNames, InvalidOnesAreRefused) {
  std::string many = "a";
  for (unsigned i = 1; i <= DeviceIdentity::kMaxDevices; ++i) many += ",a" + std::to_string(i);
  for (const std::string& text : {std::string("sixteen_letters_"), std::string("eth0,eth0"), std::string("eth0, eth1"),
                                  std::string("eth0:1"), std::string("../lo"), std::string("."), std::string(".."),
                                  std::string("a\tb"), std::string("lo\n"), std::string(100'000, 'x'), many}) {
    Names names{"old"};
    EXPECT_FALSE(read_interface_names(text, names)) << text.substr(0, 100);
    EXPECT_EQ(names, Names{"old"});
  }
  Names names;
  EXPECT_TRUE(read_interface_names(many.substr(0, many.rfind(',')), names));
  EXPECT_EQ(names.size(), DeviceIdentity::kMaxDevices);
}

TEST(InterfaceNames, EachMakesADevice) {
  const EnvironmentVariable variable(kInterfacesVariable, "nowhere0,lo");
  int count = 0;
  ibv_device** const list = api().get_device_list(&count);
  ASSERT_EQ(count, 2);
  EXPECT_STREQ(list[0]->name, "soft0");
  EXPECT_STREQ(list[1]->name, "soft1");
  EXPECT_EQ(list[2], nullptr);
  const auto state = [](ibv_device* device) {
    const verbs::ContextHandle context(api(), api().open_device(device));
    ibv_port_attr port{};
    EXPECT_EQ(api().query_port(context.get(), 1, &port), 0);
    return port.state;
  };
  EXPECT_EQ(state(list[0]), IBV_PORT_DOWN) << "there is no such interface";
  EXPECT_EQ(state(list[1]), IBV_PORT_ACTIVE);
  api().free_device_list(list);
}

TEST(InterfaceNames, AnInvalidListIsNamedWhenADeviceIsOpened) {
  const EnvironmentVariable variable(kInterfacesVariable, "lo,lo");
  const verbs::DeviceList list(api());
  ASSERT_EQ(list.size(), 1);
  EXPECT_EQ(api().open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(invalid_setting(),
            "the environment variable RDMACOMM_SOFT0_INTERFACES is \"lo,lo\"; it may be names of at most 64 network "
            "interfaces, separated by commas, each once, or not set");
}

}  // namespace
}  // namespace rdmacomm::softdev::test
