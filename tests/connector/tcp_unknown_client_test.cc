// Clients that are not peers: they are recognised, limited by deadlines, and receive the reason if they can decode it.
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

/// A listener, an unknown client connected to it, and the server's end of the connection.
struct UnknownClient {
  UnknownClient() : listener(std::move(*TcpListenSocket::listen({"127.0.0.1", 0}))), socket(listener->port()) {
    server = testing::accept_one(*listener);
  }
  Status hello(Deadline deadline = soon()) {
    return server->exchange_hello(Hello::of_this_process(), deadline).status();
  }
  std::unique_ptr<TcpListenSocket> listener;
  RawSocket socket;
  std::unique_ptr<Connector> server;
};

/// The last message in the bytes that an unknown client has received.
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

TEST(TCPUnknownClient, SendsNothing) {
  UnknownClient unknown;
  EXPECT_EQ(unknown.hello(tiny()).code(), Errc::kTimeout);
}

TEST(TCPUnknownClient, ClosesAtOnce) {
  UnknownClient unknown;
  unknown.socket.close();
  EXPECT_EQ(unknown.hello().code(), Errc::kPeerLost);
}

TEST(TCPUnknownClient, SendsGarbage) {
  UnknownClient unknown;
  ASSERT_TRUE(unknown.socket.send("GET / HTTP/1.1\r\n\r\n"));
  const Status status = unknown.hello();
  EXPECT_EQ(status.code(), Errc::kBadMessage);
  EXPECT_THAT(status.message(), HasSubstr("GET /"));
  unknown.server.reset();
  // The client receives nothing except our HELLO.
  const auto seen = last_message(unknown.socket.read_all());
  EXPECT_TRUE(!seen || seen->type == MessageType::kHello);
}

TEST(TCPUnknownClient, SendsHalfAHeaderAndWaits) {
  UnknownClient unknown;
  ASSERT_TRUE(unknown.socket.send("RDCM\x01"));
  EXPECT_EQ(unknown.hello(tiny()).code(), Errc::kTimeout);
}

TEST(TCPUnknownClient, SendsHalfAMessageAndCloses) {
  UnknownClient unknown;
  ASSERT_TRUE(unknown.socket.send("RDCM\x01"));
  unknown.socket.close();
  const Status status = unknown.hello();
  EXPECT_EQ(status.code(), Errc::kPeerLost);
  EXPECT_THAT(status.message(), HasSubstr("in the middle of a message"));
}

TEST(TCPUnknownClient, AnnouncesAHugeMessage) {
  UnknownClient unknown;
  WireWriter header;
  header.put(kHandshakeMagic);
  header.put(kHandshakeVersion);
  header.put(static_cast<std::uint16_t>(MessageType::kHello));
  header.put(std::uint32_t{0xffffffff});
  ASSERT_TRUE(unknown.socket.send(header.bytes()));
  const Status status = unknown.hello();
  EXPECT_EQ(status.code(), Errc::kBadMessage);
  EXPECT_THAT(status.message(), HasSubstr("4294967295"));
  unknown.server.reset();
  const auto told = last_message(unknown.socket.read_all());
  ASSERT_TRUE(told);
  EXPECT_EQ(told->type, MessageType::kReject);
}

TEST(TCPUnknownClient, SendsAnInvalidHello) {
  UnknownClient unknown;
  ASSERT_TRUE(unknown.socket.send(*frame_message(MessageType::kHello, as_bytes("??"))));
  EXPECT_EQ(unknown.hello().code(), Errc::kBadMessage);
}

TEST(TCPUnknownClient, OfAnotherVersionGetsOurVersion) {
  UnknownClient unknown;
  WireWriter header;
  header.put(kHandshakeMagic);
  header.put(static_cast<std::uint16_t>(kHandshakeVersion + 1));
  header.put(static_cast<std::uint16_t>(MessageType::kHello));
  header.put(std::uint32_t{0});
  ASSERT_TRUE(unknown.socket.send(header.bytes()));
  const Status status = unknown.hello();
  EXPECT_EQ(status.code(), Errc::kVersionMismatch);
  EXPECT_THAT(status.message(), HasSubstr("version 2"));
  EXPECT_THAT(status.message(), HasSubstr("version 1"));
  unknown.server.reset();
  const auto told = last_message(unknown.socket.read_all());  // decodes only headers of our own version
  ASSERT_TRUE(told);
  ASSERT_EQ(told->type, MessageType::kReject);
  EXPECT_EQ(Reject::decode(told->payload)->code, Errc::kVersionMismatch);
}

TEST(TCPUnknownClient, AClientOfAnotherVersionGetsItFromOurReject) {
  // The opposite case: how an old client understands the REJECT of a new server.
  UnknownClient unknown;
  auto bytes = *frame_message(MessageType::kReject, Reject{Errc::kVersionMismatch, "too old"}.encode());
  bytes[4] = std::byte{2};
  ASSERT_TRUE(unknown.socket.send(bytes));
  EXPECT_EQ(unknown.hello().code(), Errc::kVersionMismatch);
}

}  // namespace
}  // namespace rdmacomm
