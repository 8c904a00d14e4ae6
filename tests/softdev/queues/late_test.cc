// With RDMACOMM_SOFT0_LATE, soft0 carries out a request when its completion is polled for. So changes of a buffer
// before that become visible.
#include <cerrno>
#include <cstring>

#include "softdev/verbs/raw_verbs.h"
#include "support/environment_variable.h"

namespace rdmacomm::softdev::test {
namespace {

/// Sets the variable for contexts that are opened in this scope; nullptr: unset.
struct LateVariable : rdmacomm::testing::EnvironmentVariable {
  explicit LateVariable(const char* value) : EnvironmentVariable(kLateVariable, value) {}
};

// So late that, during the test, only a poll carries out a request.
constexpr const char* kUntilPolled = "60000";

constexpr std::uint64_t kBefore = 0x1111111111111111;
constexpr std::uint64_t kAfter = 0x2222222222222222;

void put_value(const Memory& memory, std::uint64_t value) {
  std::memcpy(memory.data, &value, sizeof(value));
}
std::uint64_t get(const Memory& memory) {
  std::uint64_t value = 0;
  std::memcpy(&value, memory.data, sizeof(value));
  return value;
}

/// A pair whose contexts were opened with `value`, with memory at both ends.
struct LateScene {
  LateVariable variable;
  Pair pair;
  Memory source{pair.a_node};
  Memory target{pair.b_node};

  explicit LateScene(const char* value) : variable(value) { put_value(source, kBefore); }
};

TEST(Late, ABufferChangedInFlightArrivesChanged) {
  LateScene scene(kUntilPolled);
  ASSERT_EQ(scene.pair.b.post_recv(scene.target.slice(0, 8), 1), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(2), scene.source.slice(0, 8)), 0);
  put_value(scene.source, kAfter);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(get(scene.target), kAfter);
}

TEST(Late, EachValueForOffTurnsItOff) {
  for (const char* value : {static_cast<const char*>(nullptr), "", "0"}) {
    LateScene scene(value);
    ASSERT_EQ(scene.pair.b.post_recv(scene.target.slice(0, 8), 1), 0);
    ASSERT_EQ(scene.pair.a.post(send_request(2), scene.source.slice(0, 8)), 0);
    put_value(scene.source, kAfter);
    EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(get(scene.target), kBefore);
  }
}

TEST(Late, ReadDataIsAbsentBeforeTheCompletion) {
  LateScene scene(kUntilPolled);
  put_value(scene.target, kAfter);
  const ibv_send_wr read = rdma_request(IBV_WR_RDMA_READ, 1, scene.target.address(), scene.target.mr->rkey);
  ASSERT_EQ(scene.pair.a.post(read, scene.source.slice(0, 8)), 0);
  EXPECT_EQ(get(scene.source), kBefore);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(get(scene.source), kAfter);
}

TEST(Late, EachPollExecutesOneRequest) {
  LateScene scene(kUntilPolled);
  for (std::uint64_t i = 0; i < 3; ++i) {
    const auto address = scene.target.address(8 * i);
    ASSERT_EQ(
        scene.pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, i, address, scene.target.mr->rkey), scene.source.slice(0, 8)),
        0);
  }
  for (std::uint64_t i = 0; i < 3; ++i) {
    const std::vector<ibv_wc> found = scene.pair.a.poll();
    ASSERT_EQ(found.size(), 1U);
    EXPECT_EQ(found[0].wr_id, i);
  }
}

TEST(Late, InlinePayloadIsStillTakenWhenPosted) {
  LateScene scene(kUntilPolled);
  ASSERT_EQ(scene.pair.b.post_recv(scene.target.slice(0, 8), 1), 0);
  ibv_send_wr send = send_request(2);
  send.send_flags = IBV_SEND_INLINE;
  ASSERT_EQ(scene.pair.a.post(send, scene.source.slice(0, 8)), 0);
  put_value(scene.source, kAfter);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(get(scene.target), kBefore);
}

TEST(Late, RequestsAreExecutedEvenIfTheInitiatorDoesNotPoll) {
  LateScene scene("1");
  ASSERT_EQ(scene.pair.b.post_recv(scene.target.slice(0, 8), 1), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(2), scene.source.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
}

TEST(Late, AnInvalidTimePreventsOpening) {
  for (const char* value : {"x", "1s", "-1", "60001", "99999999999"}) {
    const LateVariable variable(value);
    const verbs::DeviceList list(api());
    errno = 0;
    EXPECT_EQ(api().open_device(list[0]), nullptr) << value;
    EXPECT_EQ(errno, EINVAL) << value;
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
