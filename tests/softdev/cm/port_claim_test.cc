// Ports of rdma_cm, which identifiers of all processes share by the kernel's rules.
#include "softdev/cm/port_claim.h"

#include <rdma/rdma_user_cm.h>
#include <unistd.h>

#include <functional>

#include "softdev/cm/cm_scene.h"
#include "softdev/shared/unix_packet.h"
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

// ---- Listeners of other users

/// A process of another user. `body` gets the port that the test sends, and the process then lives until the test ends.
rdmacomm::testing::ForkedChild another_user(uid_t user, const std::function<bool(std::uint16_t port)>& body) {
  return rdmacomm::testing::ForkedChild([user, body](int line) {
    std::uint16_t port = 0;
    ASSERT_EQ(::recv(line, &port, sizeof(port), 0), static_cast<ssize_t>(sizeof(port)));
    const bool is_done = setresuid(user, user, user) == 0 && body(port);
    ASSERT_EQ(::send(line, &is_done, sizeof(is_done), 0), static_cast<ssize_t>(sizeof(is_done)));
    char byte = 0;
    (void)::recv(line, &byte, 1, 0);
  });
}

bool run_at(const rdmacomm::testing::ForkedChild& other, std::uint16_t port) {
  bool is_done = false;
  EXPECT_EQ(::send(other.line(), &port, sizeof(port), 0), static_cast<ssize_t>(sizeof(port)));
  EXPECT_EQ(::recv(other.line(), &is_done, sizeof(is_done), 0), static_cast<ssize_t>(sizeof(is_done)));
  return is_done;
}

/// Listens at one of the names without a claim, as a hostile program does.
std::function<bool(std::uint16_t)> listens_at_name(std::size_t which) {
  return [which](std::uint16_t port) {
    static UniqueFd listener;
    listener = listen_at(listener_names(RDMA_PS_TCP, loopback_at(port))[which]);
    return listener.valid();
  };
}

constexpr uid_t kNobody = 65534;

struct ListenersOfUsers : ::testing::Test {
  PortClaim claim;
  CmAddress any = loopback_at(0);

  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "only root can be another user";
  }
  /// This user's listener, at a port that `any` then has.
  void listen_at_all_addresses() {
    any.gid.raw[12] = any.gid.raw[15] = 0;
    ASSERT_EQ(claim.take(RDMA_PS_TCP, any, false, false), 0);
    ASSERT_EQ(claim.listen(), 0);
  }
};

TEST_F(ListenersOfUsers, CannotClaimAnAddressOfAnotherUser) {
  const auto other = another_user(kNobody, [](std::uint16_t port) {
    PortClaim claim;
    CmAddress address = loopback_at(port);
    return claim.take(RDMA_PS_TCP, address, false, false) == EADDRINUSE;
  });
  ASSERT_NO_FATAL_FAILURE(listen_at_all_addresses());
  EXPECT_TRUE(run_at(other, any.port));
}

TEST_F(ListenersOfUsers, ThisUsersIsPreferred) {
  const auto hostile = another_user(kNobody, listens_at_name(0));
  ASSERT_NO_FATAL_FAILURE(listen_at_all_addresses());
  ASSERT_TRUE(run_at(hostile, any.port));
  const UniqueFd socket = connect_to_listener(RDMA_PS_TCP, loopback_at(any.port));
  PeerCredentials owner;
  ASSERT_TRUE(socket && peer_credentials(socket.get(), owner));
  EXPECT_EQ(owner.uid, 0U);
}

TEST_F(ListenersOfUsers, NoneIsChosenOfTwoOthers) {
  const auto one = another_user(kNobody, listens_at_name(0));
  const auto other = another_user(kNobody - 1, listens_at_name(1));
  ASSERT_EQ(claim.take(RDMA_PS_TCP, any, false, false), 0);
  claim.release();
  ASSERT_TRUE(run_at(one, any.port));
  EXPECT_TRUE(connect_to_listener(RDMA_PS_TCP, loopback_at(any.port))) << "it is the only one";
  ASSERT_TRUE(run_at(other, any.port));
  EXPECT_FALSE(connect_to_listener(RDMA_PS_TCP, loopback_at(any.port)));
  EXPECT_EQ(errno, ECONNREFUSED);
}

TEST_F(ListenersOfUsers, RootsIsPreferredToAnotherUsers) {
  const auto hostile = another_user(kNobody, listens_at_name(0));
  const auto initiator = another_user(kNobody - 1, [](std::uint16_t port) {
    const UniqueFd socket = connect_to_listener(RDMA_PS_TCP, loopback_at(port));
    PeerCredentials owner;
    return socket && peer_credentials(socket.get(), owner) && owner.uid == 0;
  });
  ASSERT_NO_FATAL_FAILURE(listen_at_all_addresses());
  ASSERT_TRUE(run_at(hostile, any.port));
  EXPECT_TRUE(run_at(initiator, any.port));
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
