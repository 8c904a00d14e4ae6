// Datagrams by TCP, to a peer that is the test itself.
#include <gtest/gtest.h>

#include <array>
#include <chrono>

#include "softdev/datagrams.h"
#include "softdev/tcp_stranger.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::uint32_t kBytes = 4096;
constexpr std::uint32_t kDatagrams = 100;  // more than have room while there is no connection

/// A queue pair, and the way to the peer.
struct Sender {
  WireVariable variable{"tcp"};
  Node node;
  Memory memory{node, kBytes};
  Qp qp{node, {.type = IBV_QPT_UD, .depth = kDatagrams}};
  ManualPeer peer;
  Address to_peer{node};

  Sender() { qp.get_ready(); }
  void post(std::uint32_t number) {
    ibv_send_wr wr = datagram(number, to_peer, peer.number);
    wr.opcode = IBV_WR_SEND_WITH_IMM;
    wr.imm_data = number;
    ASSERT_EQ(qp.post(wr, memory.slice(0, kBytes)), 0);
  }
};

/// The first packet of a connection is repeated after a second for the first time.
TEST(TcpDatagrams, WaitForAConnectionWhoseFirstPacketsAreLost) {
  Sender sender;
  // One connection that waits to be accepted, and no room for another: the kernel loses the packets of whoever tries.
  ASSERT_EQ(listen(sender.peer.listener.get(), 0), 0);
  const UniqueFd first = knock(sender.peer.number);
  ASSERT_TRUE(first);
  for (std::uint32_t number = 0; number < kDatagrams; ++number) sender.post(number);
  const auto both_were_lost = std::chrono::steady_clock::now() + std::chrono::milliseconds(1500);
  std::size_t done = 0;
  while (std::chrono::steady_clock::now() < both_were_lost) done += sender.qp.poll().size();
  EXPECT_LT(done, kDatagrams);

  (void)sender.peer.accept();
  const UniqueFd its_datagrams = sender.peer.accept();
  EXPECT_EQ(hear<TcpGreeting>(its_datagrams).initiator_qpn, sender.qp.number());
  welcome(its_datagrams);
  for (std::uint32_t number = 0; number < kDatagrams; ++number) {
    ASSERT_EQ(hear<TcpRequest>(its_datagrams).immediate, number);
    (void)hear<TcpDatagramAddress>(its_datagrams);
    (void)hear<std::array<std::byte, kBytes>>(its_datagrams);
  }
  for (; done < kDatagrams; ++done) EXPECT_EQ(sender.qp.next().status, IBV_WC_SUCCESS);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
