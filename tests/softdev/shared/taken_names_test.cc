// Another user of the host takes the names by which queue pairs are found.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <thread>
#include <vector>

#include "softdev/host/multicast.h"
#include "softdev/local/two_processes.h"
#include "softdev/queues/xrc_scene.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/unix_packet.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr uid_t kNobody = 65534;

/// Takes all possible names until it is told to end.
void take_all_names(Line line) {
  const rlimit enough{kQpnBlocks + 64, kQpnBlocks + 64};
  std::vector<UniqueFd> names;
  if (setrlimit(RLIMIT_NOFILE, &enough) == 0 && setuid(kNobody) == 0) {
    for (std::uint32_t block = 1; block < kQpnBlocks; ++block) names.push_back(listen_at(block_socket_name(block)));
  }
  const bool has_all = !names.empty() && names.back().valid();
  line.send({.qpn = has_all});
  (void)line.receive();
}

void write_in_spite_of(const Child& child) {
  Pair pair;
  ASSERT_NE(pair.a.qp.get(), nullptr) << errno;
  Memory from(pair.a_node);
  Memory to(pair.b_node);
  from.fill(9);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, to.address(), to.mr->rkey), from.slice(0, 64)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(from.data, to.data, 64), 0);
  child.line().send({});
}

TEST(TakenNames, DoNotPreventQueuePairs) {
  std::string why_not;
  std::thread([&why_not] {
    const rdmacomm::testing::OwnNetwork network;
    why_not = network.why_not();
    if (!why_not.empty()) return;
    network.ip("link set lo up");
    const Child child(take_all_names);
    if (child.line().receive().qpn == 0) {
      why_not = "another user cannot have 4,095 descriptors here";
      return;
    }
    write_in_spite_of(child);
  }).join();
  if (!why_not.empty()) GTEST_SKIP() << why_not;
}

/// Another user has taken the names, for a domain and a group, by which this user's processes find each other.
TEST(TakenNames, NeitherAddNorExcludeMembers) {
  const UniqueFd file = nameless_file();
  struct stat what {};
  ASSERT_EQ(fstat(file.get(), &what), 0);
  ibv_gid group{};
  group.raw[0] = 0xff;
  group.raw[1] = 0x12;
  group.raw[15] = 0x77;
  const std::string user = std::to_string(geteuid()) + "/";
  const std::string domain = std::to_string(what.st_dev) + "/" + std::to_string(what.st_ino) + "/";
  const std::vector<std::string> names = {"xrcd/" + user + "entry/" + domain, "xrcd/" + user + "entry/" + domain + "1",
                                          "xrcd/" + user + domain + "1",
                                          "group/" + user + "ff120000000000000000000000000077/1"};
  const Child child([&names](Line line) {
    std::vector<UniqueFd> taken;
    if (setuid(kNobody) == 0) {
      for (const std::string& name : names) taken.push_back(bind_to(std::string(1, '\0') + "rdmacomm/soft0/" + name));
    }
    line.send({.qpn = static_cast<std::uint32_t>(taken.size())});
    (void)line.receive();
  });
  const std::size_t taken = child.line().receive().qpn;
  Node node;
  EXPECT_TRUE(members_of(group).empty());
  ibv_xrcd* const made = open_domain(node, file.get(), O_CREAT | O_EXCL);
  ASSERT_NE(made, nullptr) << errno;
  EXPECT_EQ(ibv_close_xrcd(made), 0);
  child.line().send({});
  if (taken != names.size()) GTEST_SKIP() << "wants a process that may become another user: root";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
