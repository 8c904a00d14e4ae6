// Who connects and is no peer: told apart, bounded by deadlines, and told why where it would understand.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "base/wire.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_pair.h"
#include "support/raw_socket.h"

namespace rdmacomm {
namespace {

using testing::as_bytes;
using ::testing::HasSubstr;
using testing::RawSocket;
using testing::soon;
using testing::tiny;

/// A listener, a stranger connected to it, and the server's end.
struct Stranger {
  Stranger() : listener(std::move(*TcpListenSocket::listen({"127.0.0.1", 0}))), socket(listener->port()) {
    server = testing::accept_one(*listener);
  }
  Status hello(Deadline deadline = soon()) {
    return server->exchange_hello(Hello::of_this_process(), deadline).status();
  }
  std::unique_ptr<TcpListenSocket> listener;
  RawSocket socket;
  std::unique_ptr<Connector> server;
};

/// The last message in what a stranger was sent.
std::optional<Message> last_message(std::span<const std::byte> stream) {
  std::optional<Message> last;
  MessageAssembler assembler;
  while (!stream.empty()) {
    const auto room = assembler.room();
    const std::size_t count = std::min(room.size(), stream.size());
    std::ranges::copy(stream.first(count), room.begin());
    stream = stream.subspan(count);
    EXPECT_TRUE(assembler.filled(count).ok());
    if (auto message = assembler.take()) last = std::move(message);
  }
  return last;
}

TEST(TCPStranger, SendsNothing) {
  Stranger stranger;
  EXPECT_EQ(stranger.hello(tiny()).code(), Errc::kTimeout);
}

TEST(TCPStranger, ClosesAtOnce) {
  Stranger stranger;
  stranger.socket.close();
  EXPECT_EQ(stranger.hello().code(), Errc::kPeerLost);
}

TEST(TCPStranger, SendsGarbage) {
  Stranger stranger;
  ASSERT_TRUE(stranger.socket.send("GET / HTTP/1.1\r\n\r\n"));
  const Status status = stranger.hello();
  EXPECT_EQ(status.code(), Errc::kBadMessage);
  EXPECT_THAT(status.message(), HasSubstr("GET /"));
  stranger.server.reset();
  // It learns nothing but our hello.
  const auto seen = last_message(stranger.socket.read_all());
  EXPECT_TRUE(!seen || seen->type == MessageType::kHello);
}

TEST(TCPStranger, SendsHalfAHeaderAndWaits) {
  Stranger stranger;
  ASSERT_TRUE(stranger.socket.send("RDCM\x01"));
  EXPECT_EQ(stranger.hello(tiny()).code(), Errc::kTimeout);
}

TEST(TCPStranger, SendsHalfAMessageAndCloses) {
  Stranger stranger;
  ASSERT_TRUE(stranger.socket.send("RDCM\x01"));
  stranger.socket.close();
  const Status status = stranger.hello();
  EXPECT_EQ(status.code(), Errc::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("in the middle of a message"));
}

TEST(TCPStranger, PromisesAHugeMessage) {
  Stranger stranger;
  WireWriter header;
  header.put(kHandshakeMagic);
  header.put(kHandshakeVersion);
  header.put(static_cast<std::uint16_t>(MessageType::kHello));
  header.put(std::uint32_t{0xffffffff});
  ASSERT_TRUE(stranger.socket.send(header.bytes()));
  const Status status = stranger.hello();
  EXPECT_EQ(status.code(), Errc::kBadMessage);
  EXPECT_THAT(status.message(), HasSubstr("4294967295"));
  stranger.server.reset();
  const auto told = last_message(stranger.socket.read_all());
  ASSERT_TRUE(told);
  EXPECT_EQ(told->type, MessageType::kReject);
}

TEST(TCPStranger, SendsAHelloThatIsNone) {
  Stranger stranger;
  ASSERT_TRUE(stranger.socket.send(*frame_message(MessageType::kHello, as_bytes("??"))));
  EXPECT_EQ(stranger.hello().code(), Errc::kBadMessage);
}

TEST(TCPStranger, OfAnotherVersionIsToldOurs) {
  Stranger stranger;
  WireWriter header;
  header.put(kHandshakeMagic);
  header.put(static_cast<std::uint16_t>(kHandshakeVersion + 1));
  header.put(static_cast<std::uint16_t>(MessageType::kHello));
  header.put(std::uint32_t{0});
  ASSERT_TRUE(stranger.socket.send(header.bytes()));
  const Status status = stranger.hello();
  EXPECT_EQ(status.code(), Errc::kVersionMismatch);
  EXPECT_THAT(status.message(), HasSubstr("version 2"));
  EXPECT_THAT(status.message(), HasSubstr("version 1"));
  stranger.server.reset();
  const auto told = last_message(stranger.socket.read_all());  // decodes only headers of our own version
  ASSERT_TRUE(told);
  ASSERT_EQ(told->type, MessageType::kReject);
  EXPECT_EQ(Reject::decode(told->payload)->code, Errc::kVersionMismatch);
}

TEST(TCPStranger, AClientOfAnotherVersionLearnsItFromOurReject) {
  // The other direction: what an old side makes of the reject of a new one.
  Stranger stranger;
  auto bytes = *frame_message(MessageType::kReject, Reject{Errc::kVersionMismatch, "too old"}.encode());
  bytes[4] = std::byte{2};
  ASSERT_TRUE(stranger.socket.send(bytes));
  EXPECT_EQ(stranger.hello().code(), Errc::kVersionMismatch);
}

}  // namespace
}  // namespace rdmacomm
