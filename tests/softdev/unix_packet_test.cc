// Names of UNIX sockets, by which processes of one host find each other.
#include "softdev/unix_packet.h"

#include <gtest/gtest.h>

#include <cerrno>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

const std::string kPrefix = "rdmacomm/unix_packet_test/" + std::to_string(getpid()) + "/";

UniqueFd bound(const std::string& name) {
  return bind_to(std::string(1, '\0') + kPrefix + name);
}

TEST(BoundNames, AreThoseThatSocketsHave) {
  EXPECT_TRUE(bound_names(kPrefix).empty());
  {
    const UniqueFd one = bound("one");
    ASSERT_TRUE(one);
    EXPECT_EQ(bound_names(kPrefix), std::vector<std::string>{"one"});
  }
  EXPECT_TRUE(bound_names(kPrefix).empty());
}

/// A stranger may have the name, and accept nobody.
TEST(Connecting, IsGivenUpWhereNobodyAccepts) {
  const std::string name = std::string(1, '\0') + kPrefix + "full";
  const UniqueFd owner = bind_to(name);
  ASSERT_TRUE(owner);
  ASSERT_EQ(listen(owner.get(), 0), 0);
  std::vector<UniqueFd> waiting;
  while (UniqueFd one = connect_to(name)) waiting.push_back(std::move(one));
  EXPECT_EQ(errno, ETIMEDOUT);
}

TEST(BoundNames, AreOfTheNetworkThatTheThreadIsIn) {
  const UniqueFd outside = bound("outside");
  ASSERT_TRUE(outside);
  std::string why_not;
  std::vector<std::string> found;
  std::thread([&] {
    const rdmacomm::testing::OwnNetwork network;
    why_not = network.why_not();
    const UniqueFd inside = bound("inside");
    found = bound_names(kPrefix);
  }).join();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
  EXPECT_EQ(found, std::vector<std::string>{"inside"});
}

}  // namespace
}  // namespace rdmacomm::softdev::test
