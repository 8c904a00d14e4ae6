#include "session/handshakes.h"

#include <gtest/gtest.h>
#include <pthread.h>

#include <atomic>
#include <future>
#include <vector>

namespace rdmacomm {
namespace {

class HandshakesTest : public ::testing::Test {
 protected:
  HandshakesTest() { EXPECT_TRUE(loop_.make_events()); }
  /// The handshakes whose end was reported.
  std::vector<Handshakes::Id> finished() {
    std::vector<Handshakes::Id> ids;
    handshakes_.join_finished([&](Handshakes::Id id) { ids.push_back(id); });
    return ids;
  }
  void wait_until_finished(Handshakes::Id id) {
    for (;;) {
      const auto ids = finished();
      if (ids.empty()) continue;
      EXPECT_EQ(ids, std::vector{id});
      return;
    }
  }

  ControlLoop loop_;
  Handshakes handshakes_{loop_};
};

TEST_F(HandshakesTest, AFinishedOneIsReportedOnce) {
  std::promise<void> go;
  const Handshakes::Id id = handshakes_.next_id();
  ASSERT_TRUE(handshakes_.start(id, nullptr, [&] { go.get_future().wait(); }));
  EXPECT_TRUE(finished().empty());
  go.set_value();
  wait_until_finished(id);
  EXPECT_TRUE(finished().empty());
}

TEST_F(HandshakesTest, AnEndedThreadIsReportedOnce) {
  const Handshakes::Id id = handshakes_.next_id();
  ASSERT_TRUE(handshakes_.start(id, nullptr, [] { pthread_exit(nullptr); }));
  wait_until_finished(id);
}

TEST_F(HandshakesTest, NoneBeginsAfterStop) {
  EXPECT_TRUE(handshakes_.stop().empty());
  EXPECT_EQ(handshakes_.begin().code(), Errc::kStopped);
  EXPECT_EQ(handshakes_.start(handshakes_.next_id(), nullptr, [] { FAIL(); }).code(), Errc::kStopped);
  EXPECT_EQ(handshakes_.connected(1, nullptr).code(), Errc::kStopped);
  handshakes_.join();
}

TEST_F(HandshakesTest, JoinWaitsForHandshakesOfClientAndServer) {
  const auto client = handshakes_.begin();
  ASSERT_TRUE(client);
  std::atomic<bool> ended{false};
  std::promise<void> go;
  ASSERT_TRUE(handshakes_.start(handshakes_.next_id(), nullptr, [&] {
    go.get_future().wait();
    ended = true;
  }));
  (void)handshakes_.stop();
  auto joined = std::async(std::launch::async, [&] { handshakes_.join(); });
  handshakes_.end(*client);
  go.set_value();
  joined.get();
  EXPECT_TRUE(ended);
}

}  // namespace
}  // namespace rdmacomm
