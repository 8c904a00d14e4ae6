// Ports of rdma_cm, which identifiers of all processes share by the kernel's rules.
#include "softdev/cm/port_claim.h"

#include <rdma/rdma_user_cm.h>

#include "softdev/cm/cm_scene.h"
#include "support/forked_child.h"

namespace rdmacomm::softdev::test {
namespace {

struct PortClaims : ::testing::Test {
  UserCm cm{DeviceIdentity{.name = "soft0"}};
  Channel channel{cm};

  /// Binds a new identifier. Returns 0, or an errno value.
  int bind(std::uint16_t port, const char* address, bool shares = false, std::uint16_t port_space = RDMA_PS_TCP) {
    last = channel.create(1, port_space);
    EXPECT_EQ(channel.set(last, RDMA_OPTION_ID_REUSEADDR, shares ? 1 : 0), 0);
    return channel.bind(last, ipv4(port, address));
  }
  std::uint32_t last = 0;
};

TEST_F(PortClaims, BelongToOneIdentifier) {
  ASSERT_EQ(bind(0, "127.0.0.1"), 0);
  const std::uint32_t first = last;
  const std::uint16_t port = channel.port_of(first);
  EXPECT_NE(port, 0);
  EXPECT_EQ(bind(port, "127.0.0.1"), EADDRINUSE);
  EXPECT_EQ(bind(port, "0.0.0.0"), EADDRINUSE) << "any address is this one, too";
  EXPECT_EQ(bind(port, "127.0.0.1", false, RDMA_PS_UDP), 0) << "another port space";
  EXPECT_EQ(channel.destroy(first), 0U);
  EXPECT_EQ(bind(port, "127.0.0.1"), 0);
}

TEST_F(PortClaims, AreSharedIfAllAllowIt) {
  ASSERT_EQ(bind(0, "127.0.0.1", true), 0);
  const std::uint32_t first = last;
  const std::uint16_t port = channel.port_of(first);
  EXPECT_EQ(bind(port, "127.0.0.1", false), EADDRINUSE);
  ASSERT_EQ(bind(port, "127.0.0.1", true), 0);
  EXPECT_EQ(channel.listen(last), 0);
  EXPECT_EQ(channel.listen(first), EADDRINUSE) << "only one may listen";
}

TEST_F(PortClaims, OfAnotherProcessCount) {
  const rdmacomm::testing::ForkedChild other([](int line) {
    UserCm its_cm(DeviceIdentity{.name = "soft0"});
    const Channel its_channel(its_cm);
    const std::uint16_t port = its_channel.port_of(its_channel.listener());
    ASSERT_EQ(::send(line, &port, sizeof(port), 0), static_cast<ssize_t>(sizeof(port)));
    char byte = 0;
    (void)::recv(line, &byte, 1, 0);  // until the test has ended
  });
  std::uint16_t port = 0;
  ASSERT_EQ(::recv(other.line(), &port, sizeof(port), 0), static_cast<ssize_t>(sizeof(port)));
  EXPECT_EQ(bind(port, "127.0.0.1"), EADDRINUSE);
}

TEST(ListenerNames, TheExactAddressIsFirst) {
  CmAddress target;
  target.family = AF_INET;
  target.port = 7471;
  target.gid.raw[10] = target.gid.raw[11] = 0xff;
  target.gid.raw[15] = 1;
  const auto names = listener_names(RDMA_PS_TCP, target);
  ASSERT_EQ(names.size(), 3U);
  const std::string port = std::string(1, '\0') + "rdmacomm/soft0/cm/262/7471/";
  EXPECT_EQ(names[0], port + "00000000000000000000ffff00000001");
  EXPECT_EQ(names[1], port + "4");
  EXPECT_EQ(names[2], port + "46");
}

}  // namespace
}  // namespace rdmacomm::softdev::test
