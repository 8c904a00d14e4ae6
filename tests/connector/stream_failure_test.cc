// A stream that fails, and the cause that its user gets.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "connector/byte_stream.h"
#include "connector/tcp_pair.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;
using testing::soon;

/// Fails every operation.
class FailingStream final : public ByteStream {
 public:
  explicit FailingStream(Transfer answer) : answer_(std::move(answer)) {}

  Transfer receive(std::span<std::byte> /*room*/) override { return answer_; }
  Transfer send(std::span<const std::byte> /*bytes*/) override { return answer_; }
  void await_input(Deadline /*deadline*/) override {}
  bool await_room(Deadline /*deadline*/) override { return true; }
  bool ended() override { return true; }
  void end_sending() noexcept override {}
  void shut_down(LastBytes /*last*/) noexcept override {}
  WatchedFd watched() const noexcept override { return {}; }
  const std::string& local_address() const noexcept override { return address_; }
  const std::string& peer_address() const noexcept override { return address_; }
  const Gid& local_gid() const noexcept override { return gid_; }

 private:
  const Transfer answer_;
  const std::string address_ = "10.0.0.2:41234";
  const Gid gid_{};
};

class StreamConnector final : public Connector {
 public:
  explicit StreamConnector(Transfer answer) : Connector(std::make_unique<FailingStream>(std::move(answer))) {}
};

const Transfer kReset{.error = std::make_error_code(std::errc::connection_reset)};
const Transfer kUnplugged{.error = kReset.error, .cause = "somebody pulled the plug"};

TEST(StreamFailure, TheErrorOfAReceiveHasTheCause) {
  StreamConnector connector(kUnplugged);
  const auto received = connector.receive_message(MessageType::kUser, soon());
  EXPECT_EQ(received.code(), Errc::kPeerLost);
  EXPECT_EQ(received.error().context, "10.0.0.2:41234 the connection failed: somebody pulled the plug");
}

TEST(StreamFailure, ALostLocalDeviceIsNotReportedAsALostPeer) {
  StreamConnector connector(Transfer{.error = Errc::kDeviceLost, .cause = "the RDMA device x is being removed"});
  EXPECT_EQ(connector.check_peer(), PeerState::kLost);
  EXPECT_EQ(connector.status().code(), Errc::kDeviceLost);
  EXPECT_EQ(connector.send_message(MessageType::kUser, {}, soon()).code(), Errc::kDeviceLost);
}

TEST(StreamFailure, GivingUpEndsWaitsWithTheReason) {
  StreamConnector connector(Transfer{.error = std::make_error_code(std::errc::operation_would_block)});
  connector.give_up(make_error(Errc::kDeviceLost, "no more"));
  connector.give_up(make_error(Errc::kStopped, "too late"));
  EXPECT_EQ(connector.receive_message(MessageType::kUser, soon()).code(), Errc::kDeviceLost);
  EXPECT_EQ(connector.send_message(MessageType::kUser, {}, soon()).code(), Errc::kDeviceLost);
  EXPECT_EQ(connector.check_peer(), PeerState::kLost);
}

TEST(StreamFailure, TheErrorOfASendHasTheCause) {
  StreamConnector connector(kUnplugged);
  const Status sent = connector.send_message(MessageType::kUser, {}, soon());
  EXPECT_EQ(sent.code(), Errc::kPeerLost);
  EXPECT_THAT(sent.message(), HasSubstr("somebody pulled the plug"));
}

TEST(StreamFailure, WithoutACauseTheErrorHasTheTextOfTheSystem) {
  StreamConnector connector(kReset);
  EXPECT_EQ(connector.check_peer(), PeerState::kLost);
  EXPECT_THAT(connector.status().message(), HasSubstr("the connection failed: " + kReset.error.message()));
}

}  // namespace
}  // namespace rdmacomm
