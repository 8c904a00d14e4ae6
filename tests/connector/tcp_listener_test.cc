#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/ip.h>
#include <netinet/tcp.h>

#include <cstring>

#include "connector/tcp_listen_socket.h"
#include "connector/tcp_pair.h"
#include "support/raw_socket.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using testing::RawSocket;
using ::testing::StartsWith;
using testing::TcpPair;

int option_of(int fd, int level, int name) {
  int value = -1;
  socklen_t length = sizeof(value);
  EXPECT_EQ(getsockopt(fd, level, name, &value, &length), 0);
  return value;
}

TEST(TcpListenSocket, AnyAddressServesIPv4AndIPv6) {
  auto listener = TcpListenSocket::listen({"", 0});
  ASSERT_TRUE(listener) << listener.status().message();
  EXPECT_NE((*listener)->port(), 0);
  for (const char* host : {"127.0.0.1", "::1", "[::1]", "localhost"}) {
    auto client = TcpConnection::connect({host, (*listener)->port()});
    ASSERT_TRUE(client) << client.status().message();
    ASSERT_NE(testing::accept_one(**listener), nullptr);
  }
}

TEST(TcpListenSocket, IPv4PeersAreShownAsIPv4OnADualStackSocket) {
  auto listener = TcpListenSocket::listen({"", 0});
  ASSERT_TRUE(listener);
  auto client = TcpConnection::connect({"127.0.0.1", (*listener)->port()});
  ASSERT_TRUE(client);
  auto server = testing::accept_one(**listener);
  EXPECT_THAT(server->peer_address(), StartsWith("127.0.0.1:"));
  EXPECT_EQ(server->peer_address(), (*client)->local_address());
  EXPECT_EQ(server->local_gid_hint(), (*client)->local_gid_hint());
}

TEST(TcpListenSocket, APortInUseIsReportedInOneLine) {
  auto first = TcpListenSocket::listen({"127.0.0.1", 0});
  ASSERT_TRUE(first);
  auto second = TcpListenSocket::listen({"127.0.0.1", (*first)->port()});
  EXPECT_EQ(second.code(), std::errc::address_in_use);
  EXPECT_THAT(second.error().context, HasSubstr("127.0.0.1:" + std::to_string((*first)->port())));
  EXPECT_THAT(second.error().context, HasSubstr("another program listens there"));
  EXPECT_THAT(second.error().message(), Not(HasSubstr("\n")));
  auto anywhere = TcpListenSocket::listen({"", (*first)->port()});
  EXPECT_EQ(anywhere.code(), std::errc::address_in_use);
}

TEST(TcpListenSocket, ForeignAddressAndUnknownHost) {
  EXPECT_EQ(TcpListenSocket::listen({"192.0.2.1", 0}).code(), std::errc::address_not_available);
  EXPECT_EQ(TcpListenSocket::listen({"256.1.1.1.invalid:", 0}).code(), Errc::kInvalidArgument);
}

TEST(TcpListenSocket, BadOptionsAreRefused) {
  TcpOptions options;
  options.priority = 99;
  auto listener = TcpListenSocket::listen({"", 0}, options);
  EXPECT_EQ(listener.code(), Errc::kInvalidArgument);
  EXPECT_THAT(listener.error().context, HasSubstr("priority is 99"));
}

TEST(TcpListenSocket, AcceptDoesNotBlock) {
  auto listener = TcpListenSocket::listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  auto nobody = (*listener)->accept();
  ASSERT_TRUE(nobody);
  EXPECT_EQ(*nobody, nullptr);
}

TEST(TcpListenSocket, AClientThatLeftBeforeAcceptIsNoError) {
  auto listener = TcpListenSocket::listen({"127.0.0.1", 0});
  ASSERT_TRUE(listener);
  RawSocket unknown((*listener)->port());
  const linger reset{1, 0};  // close by a reset instead of an orderly end
  ASSERT_EQ(setsockopt(unknown.fd(), SOL_SOCKET, SO_LINGER, &reset, sizeof(reset)), 0);
  unknown.close();
  auto accepted = (*listener)->accept();
  EXPECT_TRUE(accepted) << accepted.status().message();
}

TEST(TcpOptions, ValidateNamesTheField) {
  TcpOptions options;
  EXPECT_TRUE(options.validate().ok());
  options.connect_timeout = std::chrono::milliseconds(0);
  EXPECT_THAT(options.validate().message(), HasSubstr("connect_timeout is 0 ms"));
  options = {};
  options.handshake_timeout = std::chrono::hours(2);
  EXPECT_THAT(options.validate().message(), HasSubstr("handshake_timeout"));
  options = {};
  options.dead_host_after = std::chrono::seconds(0);
  EXPECT_THAT(options.validate().message(), HasSubstr("dead_host_after"));
  options = {};
  options.priority = -1;
  EXPECT_EQ(options.validate().code(), Errc::kInvalidArgument);
}

TEST(TcpOptions, HostPortText) {
  EXPECT_EQ((HostPort{"::1", 5}.to_text()), "[::1]:5");
  EXPECT_EQ((HostPort{"[::1]", 5}.to_text()), "[::1]:5");
  EXPECT_EQ((HostPort{"node7", 2020}.to_text()), "node7:2020");
}

TEST(TcpSocket, HasItsOptionsAtBothEnds) {
  TcpOptions options;
  options.type_of_service = 0x68;  // DSCP 26
  options.priority = 3;
  options.dead_host_after = std::chrono::seconds(5);
  for (const char* host : {"127.0.0.1", "::1"}) {
    const TcpPair pair(host, options);
    for (const Connector* end : {static_cast<Connector*>(pair.client.get()), pair.server.get()}) {
      EXPECT_EQ(option_of(end->watched().fd, IPPROTO_TCP, TCP_NODELAY), 1);
      EXPECT_EQ(option_of(end->watched().fd, SOL_SOCKET, SO_KEEPALIVE), 1);
      EXPECT_EQ(option_of(end->watched().fd, IPPROTO_TCP, TCP_USER_TIMEOUT), 5000);
      EXPECT_EQ(option_of(end->watched().fd, IPPROTO_TCP, TCP_KEEPCNT), 4);
      EXPECT_EQ(option_of(end->watched().fd, IPPROTO_IP, IP_TOS), 0x68);
      EXPECT_EQ(option_of(end->watched().fd, SOL_SOCKET, SO_PRIORITY), 3);
      EXPECT_TRUE(fcntl(end->watched().fd, F_GETFD) & FD_CLOEXEC);
    }
  }
  const TcpPair six("::1", options);
  EXPECT_EQ(option_of(six.client->watched().fd, IPPROTO_IPV6, IPV6_TCLASS), 0x68);
}

}  // namespace
}  // namespace rdmacomm
