// A connector's messages of every length arrive unchanged, in both directions, by TCP and by rdma_cm. rdma_cm sends
// them in segments, and never more at a time than the peer has posted receives for. Long messages use this window many
// times.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <future>

#include "connector/cm/cm_connector.h"
#include "connector/cm/cm_listener.h"
#include "connector/cm/cm_stream.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_listen_socket.h"
#include "contract/contract_test.h"
#include "rdmacomm/connector.h"

namespace rdmacomm::contract {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Connected = Result<std::unique_ptr<Connector>>;
using Listening = Result<std::unique_ptr<Listener>>;

template <typename To, typename From>
Result<std::unique_ptr<To>> as_base(Result<std::unique_ptr<From>> made) {
  if (!made) return made.error();
  return std::unique_ptr<To>(std::move(*made));
}

Listening listen_by(ConnectorKind kind, const std::string& ip) {
  if (kind == ConnectorKind::kCm) return as_base<Listener>(CmListener::listen({ip, 0}));
  return as_base<Listener>(TcpListenSocket::listen({ip, 0}));
}

Connected connect_by(ConnectorKind kind, const HostPort& where) {
  if (kind == ConnectorKind::kCm) return as_base<Connector>(CmConnector::connect(where));
  return as_base<Connector>(TcpConnection::connect(where));
}

Connected accept_one(Listener& listener) {
  pollfd waited{listener.fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&waited, 1, patience().poll_timeout_ms()), 1);
  return listener.accept();
}

/// The payload whose message, with its header, fills `count` segments.
constexpr std::size_t filling_segments(std::size_t count) {
  return count * CmStream::kSegmentBytes - kMessageHeaderBytes;
}

/// No two neighbouring bytes, and no two segments, are equal.
std::vector<std::byte> payload_of(std::size_t bytes) {
  std::vector<std::byte> payload(bytes);
  for (std::size_t i = 0; i < bytes; ++i) payload[i] = static_cast<std::byte>(i * 31 + i / 251);
  return payload;
}

/// A server at the address of the peer device (if it has one), and a client.
class MessagesTest : public ::testing::TestWithParam<ConnectorKind> {
 protected:
  void SetUp() override {
    const std::string ip = TestDevice::peers().address;
    if (GetParam() == ConnectorKind::kCm && ip.empty()) GTEST_SKIP() << "RDMACOMM_TEST_PEER_ADDRESS is not set";
    auto listener = listen_by(GetParam(), ip.empty() ? "127.0.0.1" : ip);
    ASSERT_TRUE(listener.has_value()) << listener.status().message();
    listener_ = std::move(*listener);
    const HostPort where{ip.empty() ? "127.0.0.1" : ip, listener_->port()};
    auto connecting = std::async(std::launch::async, connect_by, GetParam(), where);
    auto accepted = accept_one(*listener_);
    auto connected = connecting.get();
    ASSERT_TRUE(connected.has_value()) << connected.status().message();
    ASSERT_TRUE(accepted.has_value() && *accepted != nullptr) << accepted.status().message();
    client_ = std::move(*connected);
    server_ = std::move(*accepted);
  }
  static Status send(Connector& from, std::size_t bytes) {
    return from.send_message(MessageType::kUser, payload_of(bytes), patience());
  }
  static void expect_arrives(Connector& at, std::size_t bytes) {
    const auto received = at.receive_message(MessageType::kUser, patience());
    ASSERT_TRUE(received.has_value()) << bytes << " bytes: " << received.status().message();
    EXPECT_EQ(received->size(), bytes);
    EXPECT_TRUE(*received == payload_of(bytes)) << "other bytes than were sent, of " << bytes;
  }
  static void expect_goes(Connector& from, Connector& to, std::size_t bytes) {
    auto sending = std::async(std::launch::async, [&] { return send(from, bytes); });
    expect_arrives(to, bytes);
    const Status sent = sending.get();
    EXPECT_TRUE(sent.ok()) << bytes << " bytes: " << sent.message();
  }

  std::unique_ptr<Listener> listener_;
  std::unique_ptr<Connector> client_;
  std::unique_ptr<Connector> server_;
};

// The client sends first: on iWARP, the end that accepted the connection must not send first.
TEST_P(MessagesTest, OfEveryLengthArriveAsSent) {
  const std::size_t two = filling_segments(2);
  for (const std::size_t bytes :
       {std::size_t{0}, CmStream::kSegmentBytes - 1UL, std::size_t{CmStream::kSegmentBytes},
        CmStream::kSegmentBytes + 1UL, filling_segments(1) - 1, filling_segments(1), filling_segments(1) + 1, two - 1,
        two, two + 1, filling_segments(CmStream::kSlots), std::size_t{64} << 10, kMaxPayloadBytes}) {
    expect_goes(*client_, *server_, bytes);
    expect_goes(*server_, *client_, bytes);
  }
}

TEST_P(MessagesTest, OfTheGreatestLengthAreSentBothWaysAtOnce) {
  expect_goes(*client_, *server_, 0);
  auto back = std::async(std::launch::async, [this] { expect_goes(*server_, *client_, kMaxPayloadBytes); });
  expect_goes(*client_, *server_, kMaxPayloadBytes);
  back.get();
}

TEST_P(MessagesTest, BeyondTheGreatestLengthAreRefusedAndTheConnectionStays) {
  expect_goes(*client_, *server_, 0);
  for (Connector* from : {client_.get(), server_.get()}) {
    const Status refused = send(*from, kMaxPayloadBytes + 1);
    EXPECT_EQ(refused.code(), Errc::kInvalidArgument);
    EXPECT_THAT(refused.message(), AllOf(HasSubstr("1048577"), HasSubstr("at most 1048576")));
    expect_goes(*from, from == client_.get() ? *server_ : *client_, 1);
  }
}

std::string connector_name(const ::testing::TestParamInfo<ConnectorKind>& info) {
  return info.param == ConnectorKind::kCm ? "ByCm" : "ByTcp";
}

INSTANTIATE_TEST_SUITE_P(Connectors, MessagesTest, ::testing::Values(ConnectorKind::kTcp, ConnectorKind::kCm),
                         connector_name);

}  // namespace
}  // namespace rdmacomm::contract
