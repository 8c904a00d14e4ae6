// Receives that are longer than their registration: only the part that a message uses must be registered.
#include <cstring>

#include "softdev/queues/datagrams.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint32_t kRegistered = 4096;

/// A slice that begins in the registration and ends behind it.
ibv_sge long_slice(const Memory& memory) {
  ibv_sge slice = memory.slice(0, kRegistered);
  slice.length = 2 * kRegistered;
  return slice;
}

TEST(PartlyRegistered, AMessageInTheRegisteredPartArrives) {
  Pair pair;
  Memory from(pair.a_node, 2 * kRegistered);
  Memory to(pair.b_node, kRegistered);
  from.fill(1);
  for (const std::uint32_t bytes : {0U, 8U, 48U, 100U, kRegistered}) {
    std::memset(to.data, 0, kRegistered);
    ASSERT_EQ(pair.b.post_recv(long_slice(to), 1), 0);
    ASSERT_EQ(pair.a.post(send_request(2), from.slice(0, bytes)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS) << bytes;
    const ibv_wc received = pair.b.next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS) << bytes;
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_EQ(std::memcmp(to.data, from.data, bytes), 0) << bytes;
  }
}

TEST(PartlyRegistered, ALongerMessageIsTheReceiversError) {
  Pair pair;
  Memory from(pair.a_node, 2 * kRegistered);
  Memory to(pair.b_node, kRegistered);
  ASSERT_EQ(pair.b.post_recv(long_slice(to), 1), 0);
  ASSERT_EQ(pair.a.post(send_request(2), from.slice(0, kRegistered + 1)), 0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(pair.b.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(PartlyRegistered, ADatagramInASharedReceive) {
  Node node;
  ibv_srq_init_attr init{};
  init.attr = {4, 1, 0};
  const verbs::SrqHandle srq(api(), api().create_srq(node.pd.get(), &init));
  QpSettings receiving = kUd;
  receiving.srq = srq.get();
  Qp from(node, kUd);
  Qp to(node, receiving);
  from.get_ready();
  to.get_ready();
  Memory memory(node, kRegistered);
  const Address address(node);
  for (const std::uint32_t bytes : {8U, 2000U}) {
    ASSERT_EQ(post_shared_receive(srq.get(), 1, long_slice(memory)), 0);
    ASSERT_EQ(from.post(datagram(2, address, to.number()), memory.slice(2048, bytes)), 0);
    EXPECT_EQ(from.next().status, IBV_WC_SUCCESS);
    const ibv_wc received = to.next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, bytes + 40);
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
