#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>

#include <algorithm>
#include <atomic>
#include <future>
#include <string>
#include <thread>
#include <vector>

#include "base/wake_event.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_pair.h"

namespace rdmacomm {
namespace {

using std::chrono::milliseconds;
using testing::as_bytes;
using testing::as_text;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using testing::soon;
using ::testing::StartsWith;
using testing::TcpPair;
using testing::tiny;

/// A bound port on which no process listens (yet).
struct ClosedPort {
  ClosedPort() : fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof(address);
    EXPECT_EQ(::bind(fd.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port = ntohs(address.sin_port);
  }
  UniqueFd fd;
  std::uint16_t port = 0;
};

// Connecting ------------------------------------------------------------------------------------------------------

TEST(TCPConnect, NoListenerIsReportedInOneLine) {
  const ClosedPort closed;
  auto client = TcpConnection::connect({"127.0.0.1", closed.port}, {.connect_timeout = milliseconds(30)});
  EXPECT_EQ(client.code(), std::errc::connection_refused);
  const std::string text = client.error().message();
  EXPECT_THAT(text, StartsWith("no server listens at 127.0.0.1:" + std::to_string(closed.port) + "; gave up after "));
  EXPECT_THAT(text, EndsWith("(Connection refused)"));
}

TEST(TCPConnect, NamesAreShownWithTheirAddresses) {
  const ClosedPort closed;
  auto client = TcpConnection::connect({"localhost", closed.port}, {.connect_timeout = milliseconds(30)});
  EXPECT_EQ(client.code(), std::errc::connection_refused);
  EXPECT_THAT(client.error().context, HasSubstr("localhost:" + std::to_string(closed.port) + " ("));
  EXPECT_THAT(client.error().context, HasSubstr("127.0.0.1"));
}

TEST(TCPConnect, WaitsForAServerThatStartsLater) {
  const ClosedPort closed;
  const HostPort where{"127.0.0.1", closed.port};
  ASSERT_FALSE(TcpConnection::connect(where, {.connect_timeout = milliseconds(1)}));
  auto client = std::async(std::launch::async, [&] { return TcpConnection::connect(where).status(); });
  ASSERT_EQ(::listen(closed.fd.get(), 1), 0);
  EXPECT_TRUE(client.get().ok());
}

TEST(TCPConnect, CancelEndsTheWait) {
  const ClosedPort closed;
  auto stop = WakeEvent::create();
  ASSERT_TRUE(stop);
  const TcpOptions hour{.connect_timeout = std::chrono::hours(1)};
  auto client = std::async(std::launch::async, [&] {
    return TcpConnection::connect({"127.0.0.1", closed.port}, hour, stop->fd()).code();
  });
  stop->signal();
  EXPECT_EQ(client.get(), Errc::kStopped);
}

TEST(TCPConnect, InvalidOptionsAreRefused) {
  EXPECT_EQ(TcpConnection::connect({"127.0.0.1", 0}).code(), Errc::kInvalidArgument);
  EXPECT_EQ(TcpConnection::connect({"", 2020}).code(), Errc::kInvalidArgument);
  auto nowhere = TcpConnection::connect({"no such host", 2020});
  EXPECT_EQ(nowhere.code(), Errc::kInvalidArgument);
  EXPECT_THAT(nowhere.error().context, HasSubstr("no such host"));
  EXPECT_EQ(TcpConnection::connect({"127.0.0.1", 2020}, {.connect_timeout = milliseconds(0)}).code(),
            Errc::kInvalidArgument);
}

TEST(TCPConnect, LocalGidHintIsTheMappedAddress) {
  const TcpPair four("127.0.0.1");
  EXPECT_EQ(as_text(std::as_bytes(std::span(four.client->local_gid_hint().raw))),
            std::string("\0\0\0\0\0\0\0\0\0\0\xff\xff\x7f\0\0\x01", 16));
  const TcpPair six("::1");
  EXPECT_EQ(six.client->local_gid_hint().raw[15], 1);
  EXPECT_EQ(six.client->local_gid_hint().raw[11], 0);
}

// Messages --------------------------------------------------------------------------------------------------------

TEST(TcpConnection, HelloIdentifiesBothEnds) {
  const TcpPair pair;
  const Hello client_hello{.node = "alpha", .pid = 11, .instance = 1, .features = 0};
  const Hello server_hello{.node = "beta", .pid = 22, .instance = 2, .features = 0};
  auto at_server = std::async(std::launch::async, [&] { return pair.server->exchange_hello(server_hello, soon()); });
  auto at_client = pair.client->exchange_hello(client_hello, soon());
  ASSERT_TRUE(at_client) << at_client.status().message();
  EXPECT_EQ(at_client->node, "beta");
  EXPECT_EQ(at_server.get()->pid, 11U);
  EXPECT_EQ(pair.client->peer_text(), pair.client->peer_address() + " (beta, pid 22)");
}

TEST(TcpConnection, TheAcceptingEndSendsNothingBeforeThePeerDoes) {
  const TcpPair pair;
  EXPECT_EQ(pair.server->answer_hello({.node = "beta"}, tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.client->receive_message(MessageType::kHello, tiny()).code(), Errc::kTimeout);
  auto at_server = std::async(std::launch::async, [&] { return pair.server->answer_hello({.node = "beta"}, soon()); });
  const auto at_client = pair.client->exchange_hello({.node = "alpha"}, soon());
  ASSERT_TRUE(at_client) << at_client.status().message();
  EXPECT_EQ(at_client->node, "beta");
  EXPECT_EQ(at_server.get()->node, "alpha");
}

TEST(TcpConnection, MessagesArriveWholeAndInOrder) {
  const TcpPair pair;
  const std::vector<std::size_t> sizes = {0, 1, 4096, 65536, 300'000, kMaxPayloadBytes};
  auto sender = std::async(std::launch::async, [&] {
    for (const std::size_t size : sizes) {
      std::vector<std::byte> payload(size, static_cast<std::byte>(size % 251));
      const Status sent = pair.client->send_message(MessageType::kUser, payload, soon());
      if (!sent) return sent;
    }
    return Status();
  });
  for (const std::size_t size : sizes) {
    auto got = pair.server->receive_message(MessageType::kUser, soon());
    ASSERT_TRUE(got) << got.status().message();
    EXPECT_EQ(*got, std::vector<std::byte>(size, static_cast<std::byte>(size % 251)));
  }
  EXPECT_TRUE(sender.get().ok());
}

TEST(TcpConnection, MessagesOfSeveralSendersDoNotMix) {
  const TcpPair pair;
  const auto send_many = [&](char letter) {
    return std::async(std::launch::async, [&pair, letter] {
      for (int i = 0; i < 50; ++i) {
        ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes(std::string(50'000, letter)), soon()).ok());
      }
    });
  };
  auto a = send_many('a');
  auto b = send_many('b');
  for (int i = 0; i < 100; ++i) {
    auto got = pair.server->receive_message(MessageType::kUser, soon());
    ASSERT_TRUE(got) << got.status().message();
    const std::string text = as_text(*got);
    ASSERT_EQ(text, std::string(50'000, text.front()));
  }
}

TEST(TcpConnection, ReceiversOfDifferentTypesDoNotDisturbEachOther) {
  const TcpPair pair;
  for (int round = 0; round < 200; ++round) {
    auto user = std::async(std::launch::async,
                           [&] { return pair.server->receive_message(MessageType::kUser, soon()).status(); });
    auto barrier = std::async(std::launch::async, [&] { return pair.server->sync_with_peer("here", soon()); });
    ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes("x"), soon()).ok());
    ASSERT_TRUE(pair.client->sync_with_peer("here", soon()).ok());
    ASSERT_TRUE(user.get().ok());
    ASSERT_TRUE(barrier.get().ok());
  }
}

TEST(TcpConnection, TooLongAMessageIsRefusedLocallyAndTheConnectionStays) {
  const TcpPair pair;
  const std::vector<std::byte> large(kMaxPayloadBytes + 1);
  EXPECT_EQ(pair.client->send_message(MessageType::kUser, large, soon()).code(), Errc::kInvalidArgument);
  ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes("ok"), soon()).ok());
  EXPECT_EQ(as_text(*pair.server->receive_message(MessageType::kUser, soon())), "ok");
}

TEST(TcpConnection, ExpectRefusesAnotherType) {
  const TcpPair pair;
  ASSERT_TRUE(pair.client->send_message(MessageType::kOffer, as_bytes("x"), soon()).ok());
  auto got = pair.server->expect_message(MessageType::kHello, soon());
  EXPECT_EQ(got.code(), Errc::kBadMessage);
  EXPECT_THAT(got.error().context, HasSubstr("a message OFFER instead of HELLO"));
  auto told = pair.client->receive_message(MessageType::kUser, soon());
  EXPECT_EQ(told.code(), Errc::kPeerRefused);
}

TEST(TcpConnection, DeadlinesEndWaits) {
  const TcpPair pair;
  EXPECT_EQ(pair.client->receive_message(MessageType::kUser, tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.client->exchange_hello(Hello::of_this_process(), tiny()).code(), Errc::kTimeout);
  EXPECT_EQ(pair.client->check_peer(), PeerState::kOpen);
}

TEST(TcpConnection, ATimeoutNamesTheMessagesThatWait) {
  const TcpPair pair;
  ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes("x"), soon()).ok());
  ASSERT_TRUE(pair.client->send_message(MessageType::kOffer, as_bytes("y"), soon()).ok());
  ASSERT_TRUE(pair.server->receive_message(MessageType::kOffer, soon()));
  auto late = pair.server->receive_message(MessageType::kAnswer, tiny());
  EXPECT_EQ(late.code(), Errc::kTimeout);
  EXPECT_THAT(late.error().context, HasSubstr("1 messages of other types"));
}

TEST(TcpConnection, APeerThatDoesNotReadEndsTheSendAtItsDeadline) {
  const TcpPair pair;
  const std::vector<std::byte> large(kMaxPayloadBytes);
  Status sent;
  for (int i = 0; i < 100 && sent; ++i) sent = pair.client->send_message(MessageType::kUser, large, tiny());
  EXPECT_EQ(sent.code(), Errc::kTimeout);
}

TEST(TcpConnection, AFullInboxHoldsThePeerBackAndLosesNothing) {
  const TcpPair pair;
  constexpr int kCount = 3 * static_cast<int>(TcpConnection::kMaxInboxMessages);
  auto sender = std::async(std::launch::async, [&] {
    for (int i = 0; i < kCount; ++i) {
      ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes(std::to_string(i)), soon()).ok());
    }
    ASSERT_TRUE(pair.client->sync_with_peer("after", soon()).ok());
  });
  EXPECT_EQ(pair.server->receive_message(MessageType::kAnswer, tiny()).code(), Errc::kTimeout);
  auto barrier = std::async(std::launch::async, [&] { return pair.server->sync_with_peer("after", soon()); });
  for (int i = 0; i < kCount; ++i) {
    auto got = pair.server->receive_message(MessageType::kUser, soon());
    ASSERT_TRUE(got) << got.status().message();
    ASSERT_EQ(as_text(*got), std::to_string(i));
  }
  EXPECT_TRUE(barrier.get().ok());
}

TEST(TcpConnection, KeepsUnreadMessagesUpToItsLimit) {
  const TcpPair pair;
  constexpr std::size_t kLimit = 1000;
  pair.server->limit_inbox(kLimit);
  const std::vector<std::byte> payload(kLimit * 3 / 4);
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(pair.client->send_message(MessageType::kUser, payload, soon()).ok());
  EXPECT_EQ(pair.client->sync_with_peer("behind them", tiny()).code(), Errc::kTimeout);
  // Two of them fill the inbox. Later messages stay in the system's socket buffer.
  const Status unread = pair.server->sync_with_peer("behind them", tiny());
  EXPECT_EQ(unread.code(), Errc::kTimeout);
  EXPECT_THAT(unread.message(), HasSubstr("2 messages of other types wait"));
  pair.server->limit_inbox(Connector::kMaxInboxBytes);
  EXPECT_TRUE(pair.server->sync_with_peer("behind them", soon()).ok());
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pair.server->receive_message(MessageType::kUser, soon()));
}

// Barrier ---------------------------------------------------------------------------------------------------------

TEST(TcpConnection, ABarrierEndsWhenBothEndsHaveReachedIt) {
  const TcpPair pair;
  for (int i = 0; i < 20; ++i) {
    auto server = std::async(std::launch::async, [&] { return pair.server->sync_with_peer("step", soon()); });
    ASSERT_TRUE(pair.client->sync_with_peer("step", soon()).ok());
    ASSERT_TRUE(server.get().ok());
  }
}

TEST(TcpConnection, DifferentBarriersNameBothTags) {
  const TcpPair pair;
  EXPECT_EQ(pair.server->sync_with_peer("load", tiny()).code(), Errc::kTimeout);
  // The server has already sent its BARRIER, so it arrives before a later message.
  ASSERT_TRUE(pair.server->send_message(MessageType::kUser, {}, soon()).ok());
  ASSERT_TRUE(pair.client->receive_message(MessageType::kUser, soon()));
  const Status met = pair.client->sync_with_peer("run", tiny());
  EXPECT_EQ(met.code(), Errc::kWrongState);
  EXPECT_THAT(met.message(), HasSubstr("'run'"));
  EXPECT_THAT(met.message(), HasSubstr("'load'"));
  EXPECT_TRUE(pair.client->sync_with_peer("load", soon()).ok()) << "nothing was lost by it";
}

TEST(TcpConnection, ABarrierThatTimedOutCanBeWaitedForAgain) {
  const TcpPair pair;
  const Status late = pair.client->sync_with_peer("slow", tiny());
  EXPECT_EQ(late.code(), Errc::kTimeout);
  EXPECT_THAT(late.message(), HasSubstr("'slow'"));
  EXPECT_EQ(pair.client->sync_with_peer("other", tiny()).code(), Errc::kTimeout) << "which 'slow' does not hinder";
  ASSERT_TRUE(pair.server->sync_with_peer("slow", soon()).ok());
  EXPECT_TRUE(pair.client->sync_with_peer("slow", soon()).ok());
  EXPECT_EQ(pair.server->sync_with_peer("slow", tiny()).code(), Errc::kWrongState) << "the client is at 'other' now";
  EXPECT_EQ(pair.server->sync_with_peer(std::string(256, 'x'), soon()).code(), Errc::kInvalidArgument);
}

TEST(TcpConnection, ManyThreadsCanWaitAtBarriersAtATime) {
  const TcpPair pair;
  constexpr int kThreads = 8;
  constexpr int kRounds = 20;
  std::atomic<int> failed{0};
  const auto sync_all = [&](Connector& connector, int first) {
    std::vector<std::thread> threads;
    for (int i = 0; i < kThreads; ++i) {
      // The two ends go through the tags in different orders; the last two threads share a tag.
      const std::string tag = "tag " + std::to_string(std::min((i + first) % kThreads, kThreads - 2));
      threads.emplace_back([&connector, &failed, tag] {
        for (int round = 0; round < kRounds; ++round) {
          if (!connector.sync_with_peer(tag, soon()).ok()) ++failed;
        }
      });
    }
    return threads;
  };
  auto server = sync_all(*pair.server, 0);
  auto client = sync_all(*pair.client, 3);
  for (std::thread& thread : server) thread.join();
  for (std::thread& thread : client) thread.join();
  EXPECT_EQ(failed.load(), 0);
}

TEST(TcpConnection, ABarrierWithoutAProperTagEndsTheConnection) {
  const TcpPair pair;
  ASSERT_TRUE(pair.client->send_message(MessageType::kBarrier, as_bytes("\xff"), soon()).ok());
  EXPECT_EQ(pair.server->sync_with_peer("x", soon()).code(), Errc::kBadMessage);
}

TEST(TcpConnection, ATagMayHave255Bytes) {
  const TcpPair pair;
  const std::string tag(255, 'x');
  auto server = std::async(std::launch::async, [&] { return pair.server->sync_with_peer(tag, soon()); });
  const Status met = pair.client->sync_with_peer(tag, soon());
  EXPECT_TRUE(met.ok()) << met.message();
  EXPECT_TRUE(server.get().ok());
}

// Ends ------------------------------------------------------------------------------------------------------------

TEST(TcpConnection, AnOrderlyEndLosesNoMessage) {
  const TcpPair pair;
  ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes("last words"), soon()).ok());
  pair.client->send_goodbye();
  EXPECT_EQ(pair.client->send_message(MessageType::kUser, as_bytes("x"), soon()).code(), Errc::kWrongState);
  auto got = pair.server->receive_message(MessageType::kUser, soon());
  ASSERT_TRUE(got);
  EXPECT_EQ(as_text(*got), "last words");
  auto end = pair.server->receive_message(MessageType::kUser, soon());
  EXPECT_EQ(end.code(), Errc::kPeerClosed);
  EXPECT_THAT(end.error().context, HasSubstr("closed the connection"));
  EXPECT_EQ(pair.server->check_peer(), PeerState::kClosed);
  EXPECT_EQ(pair.server->status().code(), Errc::kPeerClosed);
  EXPECT_EQ(pair.server->send_message(MessageType::kUser, as_bytes("x"), soon()).code(), Errc::kPeerClosed);
}

TEST(TcpConnection, ReceivingContinuesAfterTheLocalEndIsClosed) {
  const TcpPair pair;
  ASSERT_TRUE(pair.server->send_message(MessageType::kUser, as_bytes("crossed"), soon()).ok());
  pair.client->send_goodbye();
  EXPECT_EQ(as_text(*pair.client->receive_message(MessageType::kUser, soon())), "crossed");
}

TEST(TcpConnection, AClosedPeerIsLostAndItsMessagesCanStillBeReceived) {
  TcpPair pair;
  ASSERT_TRUE(pair.client->send_message(MessageType::kUser, as_bytes("one"), soon()).ok());
  pair.client.reset();
  pollfd waited{pair.server->watched().fd, POLLRDHUP, 0};
  ASSERT_EQ(::poll(&waited, 1, 20'000), 1);
  EXPECT_EQ(pair.server->check_peer(), PeerState::kLost);
  EXPECT_EQ(as_text(*pair.server->receive_message(MessageType::kUser, soon())), "one");
  auto end = pair.server->receive_message(MessageType::kUser, soon());
  EXPECT_EQ(end.code(), Errc::kPeerLost);
  EXPECT_THAT(end.error().context, HasSubstr("closed the connection without notice"));
}

TEST(TcpConnection, AWatcherAndAReceiverBothNoticeTheEnd) {
  for (int round = 0; round < 50; ++round) {
    TcpPair pair;
    auto receiver =
        std::async(std::launch::async, [&] { return pair.server->receive_message(MessageType::kUser, soon()).code(); });
    auto watcher = std::async(std::launch::async, [&] {
      pollfd waited{pair.server->watched().fd, POLLRDHUP, 0};
      ::poll(&waited, 1, 20'000);
      return pair.server->check_peer();
    });
    pair.client.reset();
    EXPECT_EQ(receiver.get(), Errc::kPeerLost);
    EXPECT_EQ(watcher.get(), PeerState::kLost);
  }
}

TEST(TcpConnection, ShutdownEndsEveryWait) {
  const TcpPair pair;
  auto user = std::async(std::launch::async,
                         [&] { return pair.server->receive_message(MessageType::kUser, Deadline::never()).code(); });
  auto barrier =
      std::async(std::launch::async, [&] { return pair.server->sync_with_peer("x", Deadline::never()).code(); });
  pair.server->shutdown();
  EXPECT_EQ(user.get(), Errc::kStopped);
  EXPECT_EQ(barrier.get(), Errc::kStopped);
  EXPECT_EQ(pair.server->send_message(MessageType::kUser, as_bytes("x"), soon()).code(), Errc::kStopped);
}

TEST(TcpConnection, ShutdownEndsASendThatThePeerDoesNotRead) {
  const TcpPair pair;
  auto sender = std::async(std::launch::async, [&] {
    const std::vector<std::byte> large(kMaxPayloadBytes);
    Status sent;
    while (sent) sent = pair.client->send_message(MessageType::kUser, large, Deadline::never());
    return sent.code();
  });
  pair.client->shutdown();
  EXPECT_EQ(sender.get(), Errc::kStopped);
}

TEST(TcpConnection, ARefusalReachesThePeerWithItsReason) {
  const TcpPair pair;
  pair.server->refuse(make_error(Errc::kIncompatiblePeer, "GID types differ: RoCE v1 here"));
  auto told = pair.client->receive_message(MessageType::kAnswer, soon());
  EXPECT_EQ(told.code(), Errc::kPeerRefused);
  EXPECT_THAT(told.error().context, HasSubstr("ended the connection: GID types differ: RoCE v1 here"));
  EXPECT_EQ(pair.client->check_peer(), PeerState::kLost);
}

TEST(TcpConnection, ASenderGetsTheReasonOfARefusal) {
  TcpPair pair;
  pair.server->refuse(make_error(Errc::kInvalidArgument, "go away"));
  pair.server.reset();
  Status sent;
  const std::vector<std::byte> large(kMaxPayloadBytes);
  for (int i = 0; i < 1000 && sent; ++i) sent = pair.client->send_message(MessageType::kUser, large, soon());
  EXPECT_EQ(sent.code(), Errc::kPeerRefused) << sent.message();
}

}  // namespace
}  // namespace rdmacomm
