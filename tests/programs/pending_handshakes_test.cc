#include "mesh_comm_service/pending_handshakes.h"

#include <gtest/gtest.h>

namespace rdmacomm::mesh {
namespace {

using namespace std::chrono_literals;

const PendingHandshakes::Clock::time_point kStart{};
constexpr const char* kMember = "10.0.0.2:40000";
constexpr const char* kOther = "10.0.0.9:40000";

/// Returns the address whose place it takes; "busy": no place; empty: the place was free.
std::string enter(PendingHandshakes& pending, int rank, const std::string& address,
                  PendingHandshakes::Clock::time_point now = kStart) {
  const auto entered = pending.enter(rank, address, now);
  EXPECT_TRUE(entered || entered.code() == Errc::kServerBusy) << entered.status().message();
  return entered ? entered->value_or("") : "busy";
}

TEST(PendingHandshakes, EachNodeHasOnePlace) {
  PendingHandshakes pending;
  EXPECT_EQ(enter(pending, 1, kOther), "");
  EXPECT_EQ(enter(pending, 1, "10.0.0.8:1"), "busy");
  EXPECT_EQ(enter(pending, 2, "10.0.0.8:2"), "");
  pending.remove("10.0.0.8:1");  // has no place
  EXPECT_EQ(enter(pending, 1, "10.0.0.8:3"), "busy");
  pending.remove(kOther);
  EXPECT_EQ(enter(pending, 1, "10.0.0.8:4"), "");
}

TEST(PendingHandshakes, AnIdleOneGivesItsPlaceToANewerOne) {
  PendingHandshakes pending;
  (void)enter(pending, 1, kOther);
  EXPECT_EQ(enter(pending, 1, kMember, kStart + PendingHandshakes::kPatience - 1ms), "busy");
  EXPECT_EQ(enter(pending, 1, kMember, kStart + PendingHandshakes::kPatience), kOther);
  pending.remove(kOther);  // after its end: the place is no longer its own
  EXPECT_EQ(enter(pending, 1, kOther, kStart + PendingHandshakes::kPatience), "busy");
}

/// Connections of another user on the node's own host use all places and are opened again as soon as they are ended.
TEST(PendingHandshakes, ANodeIsAcceptedAmongManyOfItsOwnHost) {
  constexpr int kMany = 32;
  PendingHandshakes pending;
  pending.know_host("10.0.0.2");
  auto now = kStart;
  int port = 1;
  const auto arrive = [&] { return enter(pending, 1, "10.0.0.2:" + std::to_string(port++), now); };
  for (int i = 0; i < kMany; ++i) (void)arrive();
  EXPECT_EQ(enter(pending, 1, kMember, now), "busy");
  int turns = 0;
  for (bool is_in = false; !is_in && turns < kMany; ++turns) {
    now += PendingHandshakes::kPatience;
    for (int waiting = 1; waiting < port; ++waiting) {  // all waiting ones try at once; some are ended
      const std::string ended = enter(pending, 1, "10.0.0.2:" + std::to_string(waiting), now);
      if (ended != "busy" && !ended.empty()) (void)arrive();
    }
    is_in = enter(pending, 1, kMember, now) != "busy";
  }
  EXPECT_LE(turns, kMany / static_cast<int>(PendingHandshakes::kMaxPlaces) + 1);
}

TEST(PendingHandshakes, WaitInTheOrderOfTheirArrival) {
  PendingHandshakes pending(1);
  pending.know_host("10.0.0.2");
  EXPECT_EQ(enter(pending, 1, "10.0.0.2:1"), "");
  EXPECT_EQ(enter(pending, 1, "10.0.0.2:2"), "busy");
  EXPECT_EQ(enter(pending, 1, "10.0.0.2:3"), "busy");
  EXPECT_EQ(enter(pending, 1, kOther), "busy");
  EXPECT_TRUE(pending.waits(1, "10.0.0.2:3"));
  EXPECT_FALSE(pending.waits(1, kOther)) << "only hosts of the mesh wait";
  EXPECT_EQ(pending.next_look(1), kStart + PendingHandshakes::kPatience);
  pending.remove("10.0.0.2:1");
  EXPECT_EQ(enter(pending, 1, "10.0.0.2:3"), "busy");
  EXPECT_EQ(enter(pending, 1, "10.0.0.2:2"), "");
  EXPECT_FALSE(pending.waits(1, "10.0.0.2:2"));
  EXPECT_EQ(enter(pending, 1, "10.0.0.2:3", kStart + PendingHandshakes::kPatience), "10.0.0.2:2");
}

TEST(PendingHandshakes, TheirNumberIsLimitedByMemoryAndIsAtLeastOne) {
  EXPECT_EQ(PendingHandshakes::places_for(1), PendingHandshakes::kMaxPlaces);
  EXPECT_EQ(PendingHandshakes::places_for(PendingHandshakes::kMaxBytes / 3), 3U);
  EXPECT_EQ(PendingHandshakes::places_for(PendingHandshakes::kMaxBytes * 3), 1U);
}

TEST(PendingHandshakes, HostsOfTheMeshComeFirst) {
  for (const char* known : {"10.0.0.2", "10.0.0.2:2020", "::ffff:10.0.0.2"}) {
    PendingHandshakes pending;
    pending.know_host(known);
    pending.know_host("node7");  // not an address, so ignored
    (void)enter(pending, 1, kOther);
    EXPECT_EQ(enter(pending, 1, kMember), kOther) << known;
    EXPECT_EQ(enter(pending, 1, kOther, kStart + 1h), "busy") << known;
    EXPECT_EQ(enter(pending, 1, "10.0.0.2:50000", kStart + 1h), "") << "it has been started again";
  }
}

TEST(PendingHandshakes, AcceptAddressesOfBothFamilies) {
  PendingHandshakes pending;
  pending.know_host("[fe80::1%eth0]:2020");
  pending.know_host("2001:db8::7");
  (void)enter(pending, 1, "[2001:db8::9]:1");
  EXPECT_EQ(enter(pending, 1, "[2001:db8::7]:1"), "[2001:db8::9]:1");
  (void)enter(pending, 2, "[2001:db8::9]:2");
  EXPECT_EQ(enter(pending, 2, "[fe80::1%eth0]:2"), "[2001:db8::9]:2");
}

}  // namespace
}  // namespace rdmacomm::mesh
