// Names of UNIX sockets, by which processes of one user find each other.
#include "softdev/shared/bound_names.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <string>
#include <thread>
#include <vector>

#include "softdev/local/two_processes.h"
#include "softdev/shared/unix_packet.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr uid_t kNobodysNumber = 65534;
const std::string kPrefix = "rdmacomm/bound_names_test/" + std::to_string(getpid()) + "/";

UniqueFd bound(const std::string& name) {
  return bind_to(std::string(1, '\0') + kPrefix + name);
}

TEST(BoundNames, AreTheNamesOfSockets) {
  EXPECT_TRUE(bound_names(kPrefix).empty());
  {
    const UniqueFd one = bound("one");
    ASSERT_TRUE(one);
    EXPECT_EQ(bound_names(kPrefix), std::vector<std::string>{"one"});
  }
  EXPECT_TRUE(bound_names(kPrefix).empty());
}

/// A socket that accept(2) returns shows its listener's name, and may outlive the listener.
TEST(BoundNames, AreNotThoseOfAcceptedSockets) {
  const std::string name = std::string(1, '\0') + kPrefix + "listener";
  UniqueFd listener = listen_at(name);
  ASSERT_TRUE(listener);
  const UniqueFd connected = connect_to(name);
  const UniqueFd accepted(accept(listener.get(), nullptr, nullptr));
  ASSERT_TRUE(accepted);
  EXPECT_EQ(bound_names(kPrefix), std::vector<std::string>{"listener"});
  listener.reset();
  EXPECT_TRUE(bound_names(kPrefix).empty());
}

/// Any user can bind any name.
TEST(BoundNames, AreThisUsersOnly) {
  const Child child([](Line line) {
    UniqueFd name;
    if (setuid(kNobodysNumber) == 0) name = bound("another user's");
    line.send({.qpn = name.valid()});
    (void)line.receive();
  });
  const bool is_bound = child.line().receive().qpn != 0;
  const std::vector<std::string> found = bound_names(kPrefix);
  child.line().send({});
  if (!is_bound) GTEST_SKIP() << "wants a process that may become another user: root";
  EXPECT_TRUE(found.empty());
}

TEST(BoundNames, AreOfTheNetworkNamespaceOfTheThread) {
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
