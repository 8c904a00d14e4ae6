#include "session/handshake_queue.h"

#include <gtest/gtest.h>

#include <random>
#include <set>
#include <string>

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using Id = HandshakeQueue::Id;

const SourceNetwork kFlood = SourceNetwork::of("127.0.0.1:1");
const SourceNetwork kOther = SourceNetwork::of("127.0.0.2:1");
const HandshakeQueue::Clock::time_point kStart{};

/// Always chooses the last candidate.
std::size_t last(std::size_t below) {
  return below - 1;
}

HandshakeQueue::Decision decide(HandshakeQueue& queue, HandshakeQueue::Clock::time_point now) {
  HandshakeQueue::Decision decision;
  queue.decide(now, decision);
  return decision;
}

TEST(HandshakeQueue, StartsAtOnceWhileThereIsRoom) {
  HandshakeQueue queue({.slots = 2, .per_source = 2}, last);
  queue.arrive(1, kFlood);
  EXPECT_EQ(decide(queue, kStart).start, std::vector<Id>{1});
  queue.arrive(2, kFlood);
  queue.arrive(3, kFlood);
  EXPECT_EQ(decide(queue, kStart).start, std::vector<Id>{2});
  EXPECT_EQ(decide(queue, kStart).start, std::vector<Id>{});
  queue.finished(1);
  EXPECT_EQ(decide(queue, kStart).start, std::vector<Id>{3});
}

TEST(HandshakeQueue, ASourceCannotUseThePlacesOfOtherSources) {
  HandshakeQueue queue({.slots = 4, .per_source = 2}, last);
  for (Id id = 1; id <= 10; ++id) queue.arrive(id, kFlood);
  EXPECT_EQ(decide(queue, kStart).start, (std::vector<Id>{1, 2}));
  EXPECT_TRUE(queue.next_look().is_never()) << "time changes nothing for a source with all its places";
  queue.arrive(11, kOther);
  EXPECT_EQ(decide(queue, kStart).start, std::vector<Id>{11});
}

TEST(HandshakeQueue, TheSourceWithTheFewestStartsFirst) {
  HandshakeQueue queue({.slots = 2, .per_source = 2}, last);
  for (Id id = 1; id <= 3; ++id) queue.arrive(id, kFlood);
  EXPECT_EQ(decide(queue, kStart).start, (std::vector<Id>{1, 2}));
  queue.arrive(4, kOther);
  queue.finished(1);
  EXPECT_EQ(decide(queue, kStart).start, std::vector<Id>{4}) << "3 has waited for longer, but its source has a place";
}

TEST(HandshakeQueue, ALateHandshakeOfALargerSourceLosesItsPlace) {
  HandshakeQueue queue({.slots = 2, .per_source = 2, .patience = 1s}, last);
  queue.arrive(1, kFlood);
  queue.arrive(2, kFlood);
  (void)decide(queue, kStart);
  queue.arrive(3, kOther);
  EXPECT_TRUE(decide(queue, kStart + 999ms).drop.empty());
  EXPECT_EQ(queue.next_look().time_point(), kStart + 1s);
  EXPECT_EQ(decide(queue, kStart + 1s).drop, std::vector<Id>{2});
  EXPECT_TRUE(decide(queue, kStart + 2s).drop.empty()) << "one place for one source that waits";
  EXPECT_TRUE(queue.next_look().is_never()) << "nothing to look at until 2 has ended";
  queue.finished(2);
  EXPECT_EQ(decide(queue, kStart + 2s).start, std::vector<Id>{3});
}

TEST(HandshakeQueue, NoSourceLosesAPlaceToAnEqualOne) {
  HandshakeQueue queue({.slots = 2, .per_source = 2, .patience = 1s}, last);
  queue.arrive(1, kFlood);
  queue.arrive(2, kOther);
  (void)decide(queue, kStart);
  queue.arrive(3, kFlood);
  queue.arrive(4, kOther);
  EXPECT_TRUE(decide(queue, kStart + 1h).drop.empty());
  EXPECT_TRUE(queue.next_look().is_never());
}

TEST(HandshakeQueue, BeyondItsBoundTheSourceWithTheMostWaitingLosesOne) {
  HandshakeQueue queue({.slots = 1, .per_source = 1, .waiting = 3}, last);
  for (Id id = 1; id <= 4; ++id) queue.arrive(id, kFlood);
  EXPECT_TRUE(decide(queue, kStart).drop.empty());
  queue.arrive(5, kOther);
  EXPECT_EQ(decide(queue, kStart).drop, std::vector<Id>{4});
  EXPECT_EQ(queue.shed(), Id{3});
  EXPECT_EQ(queue.shed(), Id{5}) << "two sources with one each: chosen at random";
  EXPECT_EQ(queue.shed(), Id{2});
  EXPECT_EQ(queue.shed(), std::nullopt);
}

TEST(HandshakeQueue, IsFullWhenAllThatMayWaitAreOfDifferentSources) {
  HandshakeQueue queue({.slots = 1, .per_source = 1, .waiting = 2}, last);
  queue.arrive(1, kFlood);
  (void)decide(queue, kStart);
  queue.arrive(2, kFlood);
  queue.arrive(3, kFlood);
  EXPECT_FALSE(queue.full()) << "the next one costs its source one of these";
  queue.finished(1);
  (void)decide(queue, kStart);
  queue.arrive(4, kOther);
  EXPECT_TRUE(queue.full());
  queue.finished(2);
  (void)decide(queue, kStart);
  EXPECT_FALSE(queue.full());
}

/// 300 idle connections of one source arrive for each well-behaved connection of another source. Each of the latter is
/// accepted within 2 s.
TEST(HandshakeQueue, AFloodOfOneSourceDelaysAnotherUpToALimit) {
  for (const unsigned seed : {1U, 2U, 3U}) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    std::mt19937_64 engine(seed);
    const HandshakeQueue::Bounds bounds{.slots = 8, .per_source = 8, .waiting = 32, .patience = 1s};
    HandshakeQueue queue(bounds, [&](std::size_t below) { return engine() % below; });
    Id next = 1;
    std::set<Id> good;
    std::set<Id> started;
    auto now = kStart;
    for (int round = 0; round < 20; ++round) {
      for (int i = 0; i < 300; ++i) queue.arrive(next++, kFlood);
      queue.arrive(next, kOther);
      good.insert(next++);
      // Each step takes half a second. Dropped connections end at once; a good handshake ends within its step.
      for (int step = 0; step < 4; ++step, now += 500ms) {
        for (bool again = true; again;) {
          const auto decision = decide(queue, now);
          for (const Id id : decision.start) {
            started.insert(id);
            if (good.contains(id)) queue.finished(id);
          }
          for (const Id id : decision.drop) {
            EXPECT_FALSE(good.contains(id));
            queue.finished(id);
          }
          again = !decision.start.empty() || !decision.drop.empty();
        }
      }
      for (const Id id : good) EXPECT_TRUE(started.contains(id)) << id << " waits for longer than 2 s";
    }
  }
}

}  // namespace
}  // namespace rdmacomm
