#include "connector/handshake.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <random>

#include "base/printable.h"
#include "base/wire.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view text) {
  const auto view = std::as_bytes(std::span(text));
  return {view.begin(), view.end()};
}

/// Feeds a stream in pieces of at most `step` bytes and collects the messages.
struct Fed {
  std::vector<Message> messages;
  Status status;
};
Fed feed(std::span<const std::byte> stream, std::size_t step) {
  Fed fed;
  MessageAssembler assembler;
  while (!stream.empty()) {
    const auto room = assembler.room();
    const std::size_t count = std::min({room.size(), stream.size(), step});
    std::ranges::copy(stream.first(count), room.begin());
    stream = stream.subspan(count);
    fed.status = assembler.filled(count);
    if (!fed.status) return fed;
    if (auto message = assembler.take()) fed.messages.push_back(std::move(*message));
  }
  return fed;
}

std::vector<std::byte> header_with(std::uint32_t magic, std::uint16_t version, std::uint16_t type,
                                   std::uint32_t length) {
  WireWriter writer;
  writer.put(magic);
  writer.put(version);
  writer.put(type);
  writer.put(length);
  return writer.take();
}

TEST(MessageHeader, LaidOutAsDocumented) {
  const auto frame = frame_message(MessageType::kUser, bytes_of("abc"));
  ASSERT_TRUE(frame);
  EXPECT_EQ(*frame, bytes_of(std::string_view("RDCM\x01\x00\x07\x00\x03\x00\x00\x00"
                                              "abc",
                                              15)));
}

TEST(MessageHeader, ForeignBytesAreShown) {
  const auto fed = feed(bytes_of("GET / HTTP/1.1\r\n"), 64);
  EXPECT_EQ(fed.status.code(), Errc::kBadMessage);
  EXPECT_THAT(fed.status.message(), HasSubstr("47 45 54"));
  EXPECT_THAT(fed.status.message(), HasSubstr("\"GET / HTTP/1\""));
}

TEST(MessageHeader, ForeignBytesAreNoticedAtTheFirstOne) {
  EXPECT_EQ(feed(bytes_of("G"), 1).status.code(), Errc::kBadMessage);
  EXPECT_TRUE(feed(bytes_of("RDC"), 1).status.ok());
}

TEST(MessageHeader, OtherVersionNamesBoth) {
  const auto fed = feed(header_with(kHandshakeMagic, 9, 1, 0), 64);
  EXPECT_EQ(fed.status.code(), Errc::kVersionMismatch);
  EXPECT_THAT(fed.status.message(), HasSubstr("version 9"));
  EXPECT_THAT(fed.status.message(), HasSubstr("version " + std::to_string(kHandshakeVersion)));
}

TEST(MessageHeader, UnknownTypeIsNamed) {
  for (const std::uint16_t type : std::initializer_list<std::uint16_t>{0, 10, 65535}) {
    const auto fed = feed(header_with(kHandshakeMagic, kHandshakeVersion, type, 0), 64);
    EXPECT_EQ(fed.status.code(), Errc::kBadMessage);
    EXPECT_THAT(fed.status.message(), HasSubstr("type " + std::to_string(type)));
  }
}

TEST(MessageHeader, LengthBeyondTheTypesMaximumNamesBothNumbers) {
  const auto fed = feed(header_with(kHandshakeMagic, kHandshakeVersion, 7, 1048577), 64);
  EXPECT_EQ(fed.status.code(), Errc::kBadMessage);
  EXPECT_THAT(fed.status.message(), HasSubstr("1048577"));
  EXPECT_THAT(fed.status.message(), HasSubstr("1048576"));
  EXPECT_EQ(feed(header_with(kHandshakeMagic, kHandshakeVersion, 1, 1025), 64).status.code(), Errc::kBadMessage);
  EXPECT_EQ(feed(header_with(kHandshakeMagic, kHandshakeVersion, 6, 1), 64).status.code(), Errc::kBadMessage);
}

TEST(FrameMessage, RefusesMessagesThatThePeerWouldRefuse) {
  EXPECT_TRUE(frame_message(MessageType::kUser, std::vector<std::byte>(kMaxPayloadBytes)));
  const auto frame = frame_message(MessageType::kUser, std::vector<std::byte>(kMaxPayloadBytes + 1));
  EXPECT_EQ(frame.code(), Errc::kInvalidArgument);
  EXPECT_THAT(frame.error().context, HasSubstr("1048577"));
}

TEST(MessageAssembler, MakesTheSameMessagesFromAnyPieces) {
  std::vector<std::byte> stream;
  const std::vector<std::size_t> sizes = {0, 1, 11, 65536, 65537, kMaxPayloadBytes};
  for (const std::size_t size : sizes) {
    const auto frame = frame_message(MessageType::kUser, std::vector<std::byte>(size, std::byte{0x5a}));
    stream.insert(stream.end(), frame->begin(), frame->end());
  }
  for (const std::size_t step : {std::size_t{7}, std::size_t{4096}, stream.size()}) {
    const auto fed = feed(stream, step);
    ASSERT_TRUE(fed.status.ok()) << fed.status.message();
    ASSERT_EQ(fed.messages.size(), sizes.size());
    for (std::size_t i = 0; i < sizes.size(); ++i) {
      EXPECT_EQ(fed.messages[i].payload, std::vector<std::byte>(sizes[i], std::byte{0x5a}));
    }
  }
}

TEST(MessageAssembler, AnAnnouncedLengthTakesNoMemory) {
  MessageAssembler assembler;
  const auto header = header_with(kHandshakeMagic, kHandshakeVersion, 7, kMaxPayloadBytes);
  std::ranges::copy(header, assembler.room().begin());
  ASSERT_TRUE(assembler.filled(header.size()).ok());
  EXPECT_LE(assembler.room().size(), 65536U);
  EXPECT_TRUE(assembler.in_the_middle());
}

TEST(MessageAssembler, RefusesTooLongAMessageOnceTheHeaderHasArrived) {
  MessageAssembler assembler;
  assembler.limit(100);
  const auto fits = *frame_message(MessageType::kUser, std::vector<std::byte>(100));
  std::ranges::copy(std::span(fits).first(kMessageHeaderBytes), assembler.room().begin());
  ASSERT_TRUE(assembler.filled(kMessageHeaderBytes).ok());
  ASSERT_TRUE(assembler.filled(assembler.room().size()).ok());
  ASSERT_TRUE(assembler.take()) << "and the limit holds for the next one, too";
  const auto header = header_with(kHandshakeMagic, kHandshakeVersion, 7, 101);
  std::ranges::copy(header, assembler.room().begin());
  const Status refused = assembler.filled(header.size());
  EXPECT_EQ(refused.code(), Errc::kBadMessage);
  EXPECT_THAT(refused.message(), HasSubstr("a message USER of 101 bytes; at most 100 are allowed"));
}

TEST(MessageHeader, AnOfferIsNoLongerThanTheLargestCard) {
  for (const std::uint16_t type : {std::uint16_t{2}, std::uint16_t{3}, std::uint16_t{9}}) {
    const auto bytes = [&](std::uint32_t length) {
      const auto all = header_with(kHandshakeMagic, kHandshakeVersion, type, length);
      return MessageHeader::decode(std::span(all).first<kMessageHeaderBytes>());
    };
    EXPECT_TRUE(bytes(kMaxOfferBytes)) << type;
    EXPECT_EQ(bytes(kMaxOfferBytes + 1).code(), Errc::kBadMessage) << type;
  }
}

TEST(Hello, IsDecodedAsItWasEncoded) {
  const Hello hello{.node = "node7", .pid = 4711, .instance = 0x0123456789abcdef, .features = 5};
  const auto back = Hello::decode(hello.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->node, hello.node);
  EXPECT_EQ(back->pid, hello.pid);
  EXPECT_EQ(back->instance, hello.instance);
  EXPECT_EQ(back->features, hello.features);
}

TEST(Hello, OfThisProcessIsNewEachTime) {
  const Hello one = Hello::of_this_process();
  EXPECT_EQ(one.pid, static_cast<std::uint32_t>(getpid()));
  EXPECT_FALSE(one.node.empty());
  EXPECT_NE(one.instance, Hello::of_this_process().instance);
}

TEST(Hello, TruncatedOrTooLongIsRefused) {
  auto bytes = Hello{.node = "n", .pid = 1, .instance = 2, .features = 0}.encode();
  for (std::size_t length = 0; length < bytes.size(); ++length) {
    EXPECT_EQ(Hello::decode(std::span(bytes).first(length)).code(), Errc::kBadMessage) << length;
  }
  bytes.push_back(std::byte{0});
  EXPECT_EQ(Hello::decode(bytes).code(), Errc::kBadMessage);
}

TEST(Hello, DoesNotSteerTheTerminal) {
  const auto back = Hello::decode(Hello{.node = "\x1b[31mevil\n", .pid = 1, .instance = 2, .features = 0}.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->node, "?[31mevil?");
}

TEST(Reject, CarriesCodeAndReason) {
  const auto back = Reject::decode(Reject::of(make_error(Errc::kIncompatiblePeer, "MTU")).encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->code, Errc::kIncompatiblePeer);
  EXPECT_EQ(back->reason, "MTU");
  const Reject by_system = Reject::of(make_error(make_error_code(std::errc::io_error), "x"));
  EXPECT_EQ(by_system.code, Errc::kPeerRefused);
  EXPECT_EQ(by_system.reason, "x (Input/output error)");
}

TEST(Reject, UnknownCodesAndLongReasonsAreMadeValid) {
  const auto back = Reject::decode(Reject{static_cast<Errc>(9999), std::string(70'000, 'x')}.encode());
  ASSERT_TRUE(back);
  EXPECT_EQ(back->code, Errc::kPeerRefused);
  EXPECT_EQ(back->reason.size(), 2000U);
  EXPECT_EQ(Reject::decode({}).code(), Errc::kBadMessage);
}

// Valid streams of which some bytes were changed: the assembler either makes messages within its limits or returns
// kBadMessage / kVersionMismatch. It never holds more bytes than have arrived.
TEST(HandshakeFuzz, MutatedStreams) {
  constexpr std::uint32_t kSeed = 20240611;
  SCOPED_TRACE("seed " + std::to_string(kSeed));
  std::mt19937 random(kSeed);
  const auto number = [&](std::size_t below) { return static_cast<std::size_t>(random() % below); };
  const std::vector<Message> originals = {{MessageType::kHello, Hello::of_this_process().encode()},
                                          {MessageType::kReject, Reject{Errc::kTimeout, "late"}.encode()},
                                          {MessageType::kBarrier, bytes_of("tag")},
                                          {MessageType::kGoodbye, {}},
                                          {MessageType::kUser, std::vector<std::byte>(300)}};
  for (int round = 0; round < 20'000; ++round) {
    std::vector<std::byte> stream;
    for (std::size_t count = 1 + number(4); count > 0; --count) {
      const Message& message = originals[number(originals.size())];
      const auto frame = frame_message(message.type, message.payload);
      stream.insert(stream.end(), frame->begin(), frame->end());
    }
    for (std::size_t count = number(4); count > 0; --count)
      stream[number(stream.size())] = static_cast<std::byte>(random());
    if (number(3) == 0) stream.resize(number(stream.size() + 1));
    const auto fed = feed(stream, 1 + number(100));
    if (!fed.status) {
      ASSERT_TRUE(fed.status.code() == Errc::kBadMessage || fed.status.code() == Errc::kVersionMismatch) << round;
    }
    for (const Message& message : fed.messages) {
      ASSERT_LE(message.payload.size(), max_payload_bytes(message.type));
      const auto hello = Hello::decode(message.payload);
      ASSERT_TRUE(!hello || printable(hello->node, 255) == hello->node);
      const auto reject = Reject::decode(message.payload);
      ASSERT_TRUE(!reject || reject->reason.size() <= 2000U);
    }
  }
}

}  // namespace
}  // namespace rdmacomm
