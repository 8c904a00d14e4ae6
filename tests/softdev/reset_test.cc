// A target that goes through RESET while its initiator stays as it is.
#include "softdev/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

TEST(Reset, AMessageTakesNoReceiveOfTheTargetsLifeBefore) {
  Pair pair;
  Memory local(pair.a_node);
  Memory remote(pair.b_node);
  local.fill(3);
  ASSERT_EQ(pair.b.post_recv(remote.slice(0, 1024), 1), 0);
  ASSERT_EQ(pair.a.post(send_request(1), local.slice(0, 1024)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().wr_id, 1U);

  ASSERT_EQ(pair.b.to_state(IBV_QPS_RESET), 0);
  pair.b.connect_to(pair.a.number());
  std::memset(remote.data, 0, remote.size);
  ASSERT_EQ(pair.a.post(send_request(2), local.slice(0, 1024)), 0);
  EXPECT_TRUE(pair.a.poll().empty()) << "no receive is posted";
  EXPECT_TRUE(pair.b.poll().empty());
  EXPECT_EQ(remote.data[1], std::byte{0});
  ASSERT_EQ(pair.b.post_recv(remote.slice(2048, 1024), 2), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(pair.b.next().wr_id, 2U);
  EXPECT_EQ(std::memcmp(remote.data + 2048, local.data, 1024), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
