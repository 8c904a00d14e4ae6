// Datagrams: their receivers, the data that they arrive with, and that losses are not reported.
#include <poll.h>
#include <sys/resource.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <memory>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/common/device_limits.h"
#include "softdev/host/soft_ah.h"
#include "softdev/local/dead_initiator.h"
#include "softdev/local/two_processes.h"
#include "softdev/queues/datagrams.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/verbs/soft_verbs.h"
#include "support/own_network.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kHeader = sizeof(ibv_grh);
constexpr std::uint32_t kAllMembers = 0xffffff;

/// Two queue pairs of two nodes, with memory.
struct UdScene {
  Node a_node;
  Node b_node;
  Qp a{a_node, kUd};
  Qp b{b_node, kUd};
  Memory local{a_node, 1 << 14};
  Memory remote{b_node, 1 << 14};
  Address to_b{a_node};

  UdScene() {
    a.get_ready();
    b.get_ready();
    local.fill(3);
  }
  int send(std::size_t bytes, std::uint64_t id = 1) {
    return a.post(datagram(id, to_b, b.number()), local.slice(0, bytes));
  }
  [[nodiscard]] bool arrived(std::size_t bytes, std::size_t at = 0) const {
    return std::memcmp(local.data, remote.data + at + kHeader, bytes) == 0;
  }
};

TEST(Ud, EverySizeArrivesBehindItsHeader) {
  UdScene scene;
  for (const std::size_t bytes : {0U, 1U, 8U, 47U, 1000U, 4096U}) {
    ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 8192), 5), 0);
    ASSERT_EQ(scene.send(bytes), 0);
    const ibv_wc sent = scene.a.next();
    EXPECT_EQ(sent.status, IBV_WC_SUCCESS);
    EXPECT_EQ(sent.opcode, IBV_WC_SEND);
    const ibv_wc received = scene.b.next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.opcode, IBV_WC_RECV);
    EXPECT_EQ(received.wr_id, 5U);
    EXPECT_EQ(received.byte_len, bytes + kHeader);
    EXPECT_EQ(received.src_qp, scene.a.number());
    EXPECT_EQ(received.qp_num, scene.b.number());
    EXPECT_EQ(received.wc_flags & IBV_WC_GRH, static_cast<unsigned>(IBV_WC_GRH));
    EXPECT_TRUE(scene.arrived(bytes)) << bytes;
  }
}

TEST(Ud, ImmediateInlineAndSlices) {
  UdScene scene;
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 4096), 1), 0);
  ibv_send_wr wr = datagram(1, scene.to_b, scene.b.number());
  wr.opcode = IBV_WR_SEND_WITH_IMM;
  wr.imm_data = htonl(77);
  wr.send_flags = IBV_SEND_INLINE;
  std::array<ibv_sge, 3> slices = {scene.local.slice(0, 10), scene.local.slice(10, 0), scene.local.slice(10, 30)};
  for (ibv_sge& slice : slices) slice.lkey = 0;  // inline data need not be registered
  ASSERT_EQ(scene.a.post(wr, slices), 0);
  const ibv_wc received = scene.b.next();
  EXPECT_EQ(received.byte_len, 40U + kHeader);
  EXPECT_NE(received.wc_flags & IBV_WC_WITH_IMM, 0U);
  EXPECT_EQ(received.imm_data, htonl(77));
  EXPECT_TRUE(scene.arrived(40));
}

TEST(Ud, AReceiveIsScatteredOverItsSlices) {
  UdScene scene;
  std::array<ibv_sge, 3> slices = {scene.remote.slice(0, kHeader - 8), scene.remote.slice(kHeader - 8, 20),
                                   scene.remote.slice(kHeader + 12, 1000)};
  ASSERT_EQ(scene.b.post_recv(slices, 1), 0);
  ASSERT_EQ(scene.send(500), 0);
  EXPECT_EQ(scene.b.next().byte_len, 500U + kHeader);
  EXPECT_TRUE(scene.arrived(500));
}

TEST(Ud, OneQueuePairSendsToManyAndReceivesFromMany) {
  UdScene scene;
  Node c_node;
  Qp c(c_node, kUd);
  c.get_ready();
  Memory c_memory(c_node);
  const Address to_any(c_node);
  ASSERT_EQ(c.post_recv(c_memory.slice(0, 1024), 8), 0);
  for (std::uint64_t id = 0; id < 2; ++id) ASSERT_EQ(scene.b.post_recv(scene.remote.slice(id * 1024, 1024), id), 0);
  ASSERT_EQ(scene.send(16), 0);
  ASSERT_EQ(scene.a.post(datagram(2, scene.to_b, c.number()), scene.local.slice(0, 16)), 0);
  ASSERT_EQ(c.post(datagram(3, to_any, scene.b.number()), c_memory.slice(0, 16)), 0);
  EXPECT_EQ(scene.b.next().src_qp, scene.a.number());
  EXPECT_EQ(scene.b.next().src_qp, c.number());
  EXPECT_EQ(c.next().opcode, IBV_WC_SEND);
  EXPECT_EQ(c.next().opcode, IBV_WC_RECV);
}

/// Each datagram contains one number, repeated.
TEST(Ud, ManySendersAtOnceMixNothing) {
  constexpr std::size_t kSenders = 4;
  constexpr std::size_t kEach = 300;
  constexpr std::size_t kCopies = 100;
  constexpr std::size_t kPlace = 512;
  Node target_node;
  Qp target(target_node, {.type = IBV_QPT_UD, .depth = kSenders * kEach});
  target.get_ready();
  Memory memory(target_node, kPlace * kSenders * kEach);
  for (std::uint64_t id = 0; id < kSenders * kEach; ++id) {
    ASSERT_EQ(target.post_recv(memory.slice(id * kPlace, kPlace), id), 0);
  }
  std::array<Node, kSenders> nodes;  // each with its own device, like processes
  std::vector<std::jthread> threads;
  for (std::uint32_t by = 0; by < kSenders; ++by) {
    threads.emplace_back([&nodes, &target, by] {
      Qp qp(nodes[by], kUd);
      qp.get_ready();
      Memory own(nodes[by]);
      const Address address(nodes[by]);
      for (std::uint32_t number = 0; number < kEach; ++number) {
        const std::vector<std::uint32_t> payload(kCopies, by << 16 | number);
        std::memcpy(own.data, payload.data(), kCopies * sizeof(payload[0]));
        ASSERT_EQ(qp.post(datagram(1, address, target.number()), own.slice(0, kCopies * sizeof(payload[0]))), 0);
        ASSERT_EQ(qp.next().status, IBV_WC_SUCCESS);
      }
    });
  }
  threads.clear();
  std::array<std::uint32_t, kSenders> next{};  // the next number expected from each sender
  std::uint64_t received = 0;
  for (auto some = target.poll(64); !some.empty(); some = target.poll(64)) {
    for (const ibv_wc& wc : some) {
      EXPECT_EQ(wc.wr_id, received++);
      std::array<std::uint32_t, kCopies> payload{};
      std::memcpy(payload.data(), memory.data + wc.wr_id * kPlace + kHeader, sizeof(payload));
      EXPECT_EQ(std::ranges::count(payload, payload[0]), static_cast<std::ptrdiff_t>(kCopies));
      const std::uint32_t by = payload[0] >> 16;
      ASSERT_LT(by, kSenders);
      EXPECT_GE(payload[0] & 0xffff, next[by]);
      next[by] = (payload[0] & 0xffff) + 1;
    }
  }
  EXPECT_GE(received, kEach) << "some may be lost, where a sender that is at it loses its core for long";
}

TEST(Ud, ALostDatagramIsNotReported) {
  UdScene scene;
  const auto lost = [&](const ibv_send_wr& wr) {
    ASSERT_EQ(scene.a.post(wr, scene.local.slice(0, 16)), 0);
    EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.b.poll().empty());
  };
  lost(datagram(1, scene.to_b, scene.b.number()));  // no receive
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 9), 0);
  EXPECT_TRUE(scene.b.poll().empty()) << "it does not come later";
  lost(datagram(2, scene.to_b, scene.b.number(), kUd.qkey + 1));
  lost(datagram(3, scene.to_b, 12345));
  Qp rc(scene.b_node);
  lost(datagram(4, scene.to_b, rc.number()));
  ASSERT_EQ(scene.send(16), 0);
  EXPECT_EQ(scene.b.next().wr_id, 9U) << "and the receive is still there";
  EXPECT_EQ(state_of(scene.a), IBV_QPS_RTS);
}

TEST(Ud, AQKeyWithTheHighestBitMeansTheSendersOwn) {
  UdScene scene;
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 9), 0);
  ASSERT_EQ(scene.a.post(datagram(1, scene.to_b, scene.b.number(), 0x80000000), scene.local.slice(0, 16)), 0);
  EXPECT_EQ(scene.b.next().wr_id, 9U);
}

TEST(Ud, ATargetThatIsCreatedLaterIsFound) {
  UdScene scene;
  Qp late(scene.b_node, kUd);
  ASSERT_EQ(scene.a.post(datagram(1, scene.to_b, late.number()), scene.local.slice(0, 16)), 0);
  late.get_ready();
  ASSERT_EQ(late.post_recv(scene.remote.slice(0, 1024), 4), 0);
  ASSERT_EQ(scene.a.post(datagram(2, scene.to_b, late.number()), scene.local.slice(0, 16)), 0);
  EXPECT_EQ(late.next().wr_id, 4U);
}

TEST(Ud, DatagramsToADestroyedTargetSucceed) {
  UdScene scene;
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 9), 0);
  ASSERT_EQ(scene.send(16), 0);
  EXPECT_EQ(scene.b.next().wr_id, 9U);
  const ibv_send_wr wr = datagram(2, scene.to_b, scene.b.number());
  scene.b.qp.reset();
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
    ASSERT_EQ(scene.a.post(wr, scene.local.slice(0, 16)), 0);
  }
}

TEST(Ud, TooLongForItsReceiveIsTheReceiversError) {
  UdScene scene;
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, kHeader + 15), 9), 0);
  ASSERT_EQ(scene.send(16), 0);
  EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.b.next().status, IBV_WC_LOC_LEN_ERR);
  EXPECT_EQ(state_of(scene.a), IBV_QPS_RTS);
  EXPECT_EQ(state_of(scene.b), IBV_QPS_ERR);
}

TEST(Ud, ALocalErrorStopsTheSendQueueAlone) {
  for (const bool too_long : {true, false}) {
    UdScene scene;
    ibv_sge slice = scene.local.slice(0, too_long ? 4097 : 16);
    if (!too_long) slice.lkey += 256;
    ASSERT_EQ(scene.a.post(datagram(1, scene.to_b, scene.b.number()), slice), 0);
    EXPECT_EQ(scene.a.next().status, too_long ? IBV_WC_LOC_LEN_ERR : IBV_WC_LOC_PROT_ERR);
    EXPECT_EQ(state_of(scene.a), IBV_QPS_SQE);
    ASSERT_EQ(scene.send(16, 2), 0);
    EXPECT_EQ(scene.a.next().status, IBV_WC_WR_FLUSH_ERR);

    Memory own(scene.a_node);
    const Address to_a(scene.b_node);
    ASSERT_EQ(scene.a.post_recv(own.slice(0, 1024), 3), 0);
    ASSERT_EQ(scene.b.post(datagram(4, to_a, scene.a.number()), scene.remote.slice(0, 16)), 0);
    EXPECT_EQ(scene.a.next().wr_id, 3U) << "it goes on receiving";

    ASSERT_EQ(scene.a.to_state(IBV_QPS_RTS), 0);
    ASSERT_EQ(scene.send(16, 5), 0);
    EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
  }
}

TEST(Ud, UnsupportedOperationsAreRefused) {
  UdScene scene;
  ibv_send_wr write = datagram(1, scene.to_b, scene.b.number());
  for (const ibv_wr_opcode opcode : {IBV_WR_RDMA_WRITE, IBV_WR_RDMA_READ, IBV_WR_ATOMIC_FETCH_AND_ADD}) {
    write.opcode = opcode;
    EXPECT_EQ(scene.a.post(write, scene.local.slice(0, 8)), EINVAL);
  }
  ibv_send_wr no_address = datagram(1, scene.to_b, scene.b.number());
  no_address.wr.ud.ah = nullptr;
  EXPECT_EQ(scene.a.post(no_address, scene.local.slice(0, 8)), EINVAL);
  EXPECT_EQ(scene.a.post(datagram(1, scene.to_b, 0x1000000), scene.local.slice(0, 8)), EINVAL);
}

TEST(Ud, MovesWithItsOwnAttributes) {
  Node node;
  Qp qp(node, kUd);
  qp.settings.type = IBV_QPT_UC;
  EXPECT_EQ(qp.to_init(), EINVAL) << "there are no access flags";
  qp.settings.type = IBV_QPT_UD;
  ASSERT_EQ(qp.to_init(), 0);
  qp.settings.type = IBV_QPT_UC;
  EXPECT_EQ(qp.to_rtr(qp.number()), EINVAL) << "there is no connection";
  qp.settings.type = IBV_QPT_UD;
  ASSERT_EQ(qp.to_state(IBV_QPS_RTR), 0);
  EXPECT_EQ(qp.to_state(IBV_QPS_RTS), EINVAL) << "the packet sequence number is missing";
  ASSERT_EQ(qp.to_rts(), 0);
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  ASSERT_EQ(api().query_qp(qp.qp.get(), &attributes, IBV_QP_QKEY, &init), 0);
  EXPECT_EQ(attributes.qkey, kUd.qkey);
}

TEST(Ud, TheHeaderNamesTheSenderForAReply) {
  // The link-local address by RoCE v1 and v2, and the first IPv4 address by both.
  for (std::uint8_t index = 0; index < 4; ++index) {
    SCOPED_TRACE(static_cast<int>(index));
    UdScene scene;
    const ibv_gid gid = gid_at(scene.a_node, index);
    const Address to_b(scene.a_node, gid, index);
    ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 9), 0);
    ASSERT_EQ(scene.a.post(datagram(1, to_b, scene.b.number()), scene.local.slice(0, 16)), 0);
    const ibv_wc received = scene.b.next();
    ibv_grh header{};
    std::memcpy(&header, scene.remote.data, sizeof(header));
    ibv_ah_attr back{};
    ASSERT_EQ(init_ah_from_wc(scene.b_node.context.get(), 1, received, &header, back), 0);
    EXPECT_EQ(back.grh.sgid_index, index);
    EXPECT_EQ(std::memcmp(back.grh.dgid.raw, gid.raw, sizeof(gid.raw)), 0);
    EXPECT_EQ(back.grh.hop_limit, 7);
    EXPECT_EQ(back.grh.traffic_class, 9);

    ibv_ah* const answer_to = create_ah_from_wc(scene.b_node.pd.get(), received, &header, 1);
    ASSERT_NE(answer_to, nullptr);
    ASSERT_EQ(scene.a.post_recv(scene.local.slice(4096, 1024), 8), 0);
    ibv_send_wr answer = send_request(2);
    answer.wr.ud = {answer_to, received.src_qp, kUd.qkey};
    ASSERT_EQ(scene.b.post(answer, scene.remote.slice(0, 16)), 0);
    EXPECT_EQ(scene.a.next().opcode, IBV_WC_SEND);
    EXPECT_EQ(scene.a.next().src_qp, scene.b.number());
    destroy_ah(answer_to);
  }
}

TEST(Ud, AnAddressBeyondTheIndexesOfAHandleIsNotCut) {
  const rdmacomm::testing::OwnNetwork network;
  if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
  network.ip("link set lo up");
  network.run("for n in $(seq 1 130); do ip address add 10.0.0.$n/32 dev lo; done");
  UdScene scene;
  const auto index_of_received = [&](std::uint32_t target, int& index) {
    const Address to_b(scene.a_node, gid_at(scene.b_node, target), 3);
    EXPECT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 9), 0);
    EXPECT_EQ(scene.a.post(datagram(1, to_b, scene.b.number()), scene.local.slice(0, 16)), 0);
    const ibv_wc received = scene.b.next();
    ibv_grh header{};
    std::memcpy(&header, scene.remote.data, sizeof(header));
    ibv_ah_attr back{};
    errno = 0;
    const int result = init_ah_from_wc(scene.b_node.context.get(), 1, received, &header, back);
    index = back.grh.sgid_index;
    return result == 0 ? 0 : errno;
  };
  int index = 0;
  EXPECT_EQ(index_of_received(255, index), 0);
  EXPECT_EQ(index, 255);
  EXPECT_EQ(index_of_received(257, index), ENOENT);
}

TEST(Ud, TheCompletionSaysWhichHeaderItHas) {
  // The link-local address by RoCE v1 and v2, and the first IPv4 address by both.
  constexpr std::uint8_t kKinds[] = {0, 9, 0, 10};
  for (std::uint8_t index = 0; index < 4; ++index) {
    SCOPED_TRACE(static_cast<int>(index));
    UdScene scene;
    const Address to_b(scene.a_node, gid_at(scene.a_node, index), index);
    ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 9), 0);
    ASSERT_EQ(scene.a.post(datagram(1, to_b, scene.b.number()), scene.local.slice(0, 16)), 0);
    EXPECT_EQ(scene.b.next().sl, kKinds[index]);
  }
}

TEST(Ud, AHeaderForAnotherHostGivesNoAddress) {
  Node node;
  ibv_wc wc{};
  wc.wc_flags = IBV_WC_GRH;
  const ibv_grh zeros{};
  ibv_ah_attr back{};
  EXPECT_EQ(init_ah_from_wc(node.context.get(), 1, wc, &zeros, back), -1);
  EXPECT_EQ(errno, ENOENT);
}

TEST(Ud, AddressesThatCannotBeReached) {
  Node node;
  ibv_ah_attr attributes{};
  attributes.port_num = 1;
  EXPECT_EQ(create_ah(node.pd.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL) << "RoCE has no addresses but GIDs";
  attributes.is_global = 1;
  attributes.grh.dgid.raw[10] = attributes.grh.dgid.raw[11] = 0xff;
  attributes.grh.dgid.raw[12] = 192;  // an IPv4 address, from entry 0, which is not IPv4
  EXPECT_EQ(create_ah(node.pd.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EHOSTUNREACH);
  attributes.grh.dgid = gid_at(node, 1);
  attributes.grh.sgid_index = 200;
  EXPECT_EQ(create_ah(node.pd.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.grh.sgid_index = 1;
  attributes.port_num = 2;
  EXPECT_EQ(create_ah(node.pd.get(), &attributes), nullptr);
  EXPECT_EQ(errno, EINVAL);
  attributes.port_num = 1;
  ibv_ah* const good = create_ah(node.pd.get(), &attributes);
  ASSERT_NE(good, nullptr);
  EXPECT_EQ(api().dealloc_pd(node.pd.get()), EBUSY) << "it belongs to the domain";
  EXPECT_EQ(destroy_ah(good), 0);
}

TEST(Ud, TakesFromASharedReceiveQueue) {
  Node node;
  ibv_srq_init_attr init{};
  init.attr = {8, 1, 0};
  const verbs::SrqHandle srq(api(), api().create_srq(node.pd.get(), &init));
  QpSettings settings = kUd;
  settings.srq = srq.get();
  Qp target(node, settings);
  target.get_ready();
  Memory memory(node);
  ibv_sge place = memory.slice(0, 1024);
  ibv_recv_wr wr{};
  wr.wr_id = 6;
  wr.sg_list = &place;
  wr.num_sge = 1;
  ibv_recv_wr* bad = nullptr;
  ASSERT_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), 0);

  Node sender_node;
  Qp sender(sender_node, kUd);
  sender.get_ready();
  Memory own(sender_node);
  own.fill(5);
  const Address address(sender_node);
  ASSERT_EQ(sender.post(datagram(1, address, target.number()), own.slice(0, 100)), 0);
  const ibv_wc received = target.next();
  EXPECT_EQ(received.wr_id, 6U);
  EXPECT_EQ(received.src_qp, sender.number());
  EXPECT_EQ(std::memcmp(own.data, memory.data + kHeader, 100), 0);
}

TEST(Ud, TheSlotOfADeadInitiatorIsReused) {
  UdScene scene;
  const auto exchange = [&scene] {
    ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 8192), 5), 0);
    ASSERT_EQ(scene.send(8), 0);
    EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.b.next().src_qp, scene.a.number());
  };
  for (int i = 0; i < 20; ++i) {  // fills the ring and wraps around
    die_at_work(scene.b.number(), 77, [](RemoteQp& target) { ++target.view.shared->taken; });
    exchange();
    die_at_work(scene.b.number(), 77, [](RemoteQp&) {});  // before it took a slot
    exchange();
  }
}

/// A process that is killed in the middle of a request does not block others from the target.
TEST(Ud, AnInitiatorKilledInTheMiddleDoesNotBlockOthers) {
  for (int round = 0; round < 20; ++round) {
    Child child([](Line line) {
      Node node;
      Qp qp(node, kUd);
      qp.get_ready();
      Memory memory(node);
      const Address address(node);
      const std::uint32_t target = line.receive().qpn;
      for (;;) {
        (void)qp.post(datagram(1, address, target), memory.slice(0, 4096));
        (void)qp.poll();
      }
    });
    UdScene scene;
    Memory places(scene.b_node, 16 * 8192);
    const auto post = [&](std::uint64_t at) { return scene.b.post_recv(places.slice(at * 8192, 8192), at); };
    for (std::uint64_t at = 0; at < 16; ++at) ASSERT_EQ(post(at), 0);
    child.line().send({scene.b.number(), 0, 0});
    int received = 0;
    while (received < 50 + round * 20) {
      for (const ibv_wc& wc : scene.b.poll()) {
        ++received;
        ASSERT_EQ(post(wc.wr_id), 0);
      }
    }
    child.kill();
    bool arrived = false;
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (!arrived && std::chrono::steady_clock::now() < end) {
      ASSERT_EQ(scene.send(16), 0);
      EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
      for (const ibv_wc& wc : scene.b.poll()) {
        arrived = arrived || wc.src_qp == scene.a.number();
        ASSERT_EQ(post(wc.wr_id), 0);
      }
    }
    EXPECT_TRUE(arrived) << round;
  }
}

// ---- Groups

ibv_gid group(std::uint8_t number) {
  ibv_gid gid{};
  gid.raw[0] = 0xff;
  gid.raw[1] = 0x0e;
  gid.raw[15] = number;
  return gid;
}

TEST(Multicast, OnlyMembersGetADatagram) {
  UdScene scene;
  Node c_node;
  Node d_node;
  Qp c(c_node, kUd);
  Qp d(d_node, kUd);
  Memory c_memory(c_node);
  Memory d_memory(d_node);
  c.get_ready();
  d.get_ready();
  const ibv_gid one = group(1);
  const ibv_gid two = group(2);
  ASSERT_EQ(attach_mcast(scene.b.qp.get(), &one, 0), 0);
  ASSERT_EQ(attach_mcast(c.qp.get(), &one, 0), 0);
  ASSERT_EQ(attach_mcast(d.qp.get(), &two, 0), 0);
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 2), 0);
  ASSERT_EQ(c.post_recv(c_memory.slice(0, 1024), 3), 0);
  ASSERT_EQ(d.post_recv(d_memory.slice(0, 1024), 4), 0);
  const Address to_group(scene.a_node, one, 1);
  ASSERT_EQ(scene.a.post(datagram(1, to_group, kAllMembers), scene.local.slice(0, 64)), 0);
  EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.b.next().wr_id, 2U);
  EXPECT_EQ(c.next().wr_id, 3U);
  EXPECT_TRUE(scene.arrived(64));
  EXPECT_TRUE(d.poll().empty());
  for (Qp* const member : {&scene.b, &c}) EXPECT_EQ(detach_mcast(member->qp.get(), &one, 0), 0);
  EXPECT_EQ(detach_mcast(d.qp.get(), &two, 0), 0);
}

TEST(Multicast, AFormerMemberGetsNothing) {
  UdScene scene;
  const ibv_gid one = group(3);
  ASSERT_EQ(attach_mcast(scene.b.qp.get(), &one, 0), 0);
  EXPECT_EQ(attach_mcast(scene.b.qp.get(), &one, 0), 0) << "twice is as once";
  EXPECT_EQ(api().destroy_qp(scene.b.qp.get()), EBUSY);
  ASSERT_EQ(detach_mcast(scene.b.qp.get(), &one, 0), 0);
  EXPECT_EQ(detach_mcast(scene.b.qp.get(), &one, 0), EINVAL);
  ASSERT_EQ(scene.b.post_recv(scene.remote.slice(0, 1024), 2), 0);
  const Address to_group(scene.a_node, one, 1);
  ASSERT_EQ(scene.a.post(datagram(1, to_group, kAllMembers), scene.local.slice(0, 64)), 0);
  EXPECT_EQ(scene.a.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.b.poll().empty());
}

TEST(Multicast, TheGroupsOfAHostAreLimited) {
  const rdmacomm::testing::OwnNetwork network;  // no other process uses a group there
  if (!network.why_not().empty()) GTEST_SKIP() << network.why_not();
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &before), 0);
  const rlimit raised{kMaxGroups + 200, before.rlim_max};
  if (setrlimit(RLIMIT_NOFILE, &raised) != 0) GTEST_SKIP() << "no leave for " << raised.rlim_cur << " descriptors";
  {
    // Members as if from other processes.
    std::vector<UniqueFd> members;
    for (int i = 0; i < kMaxGroups - 1; ++i) {
      char name[64] = "";
      const int length = std::snprintf(name + 1, sizeof(name) - 1, "rdmacomm/soft0/group/%u/%032d/1", geteuid(), i);
      members.push_back(bind_to(std::string(name, static_cast<std::size_t>(length) + 1)));
      ASSERT_TRUE(members.back().valid());
    }
    UdScene scene;
    const ibv_gid last = group(1);
    const ibv_gid one_more = group(2);
    EXPECT_EQ(attach_mcast(scene.a.qp.get(), &last, 0), 0);
    EXPECT_EQ(attach_mcast(scene.a.qp.get(), &one_more, 0), ENOMEM);
    EXPECT_EQ(attach_mcast(scene.b.qp.get(), &last, 0), 0) << "it is there already";
    EXPECT_EQ(detach_mcast(scene.b.qp.get(), &last, 0), 0);
    EXPECT_EQ(detach_mcast(scene.a.qp.get(), &last, 0), 0);
    EXPECT_EQ(attach_mcast(scene.a.qp.get(), &one_more, 0), 0) << "a group ends with its last member";
    EXPECT_EQ(detach_mcast(scene.a.qp.get(), &one_more, 0), 0);
  }
  EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before), 0);
}

TEST(Multicast, InvalidGroupsAreRefused) {
  UdScene scene;
  const ibv_gid no_group = gid_at(scene.a_node, 1);
  EXPECT_EQ(attach_mcast(scene.a.qp.get(), &no_group, 0), EINVAL);
  Qp rc(scene.a_node);
  const ibv_gid one = group(4);
  EXPECT_EQ(attach_mcast(rc.qp.get(), &one, 0), EINVAL);
  const Address to_group(scene.a_node, one, 1);
  ibv_sge wrong = scene.local.slice(0, 16);
  wrong.lkey += 256;
  ASSERT_EQ(scene.a.post(datagram(1, to_group, kAllMembers), wrong), 0);
  EXPECT_EQ(scene.a.next().status, IBV_WC_LOC_PROT_ERR) << "with no member as well";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
