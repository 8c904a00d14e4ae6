// Permission to share memory depends on the kernel's checks, not on the user number.
#include "softdev/shared/access_proof.h"

#include <fcntl.h>
#include <linux/capability.h>
#include <sched.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cstring>
#include <span>
#include <string>
#include <vector>

#include "softdev/local/few_descriptors.h"
#include "softdev/local/peer.h"
#include "softdev/local/two_processes.h"
#include "softdev/memory/mr_table.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/shared_file.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::softdev::test {
namespace {

TEST(AccessProof, TwoProcessesThatMayInspectEachOtherProveIt) {
  AccessProof one;
  AccessProof other;
  ASSERT_EQ(one.create(), 0);
  ASSERT_EQ(other.create(), 0);
  ASSERT_EQ(one.read_peer(getpid(), other.descriptor()), 0);
  ASSERT_EQ(other.read_peer(getpid(), one.descriptor()), 0);
  EXPECT_TRUE(other.is_proven_by(one.answer()));
  EXPECT_TRUE(one.is_proven_by(other.answer()));
}

TEST(AccessProof, AnAnswerProvesNothingToAThirdProcess) {
  AccessProof one;
  AccessProof between;
  AccessProof third;
  for (AccessProof* const end : {&one, &between, &third}) ASSERT_EQ(end->create(), 0);
  // The process in the middle makes the third read the first one's descriptor, and forwards the answer.
  ASSERT_EQ(one.read_peer(getpid(), between.descriptor()), 0);
  ASSERT_EQ(third.read_peer(getpid(), one.descriptor()), 0);
  EXPECT_FALSE(one.is_proven_by(third.answer()));
  EXPECT_FALSE(one.is_proven_by(AccessProof::Number{}));
}

TEST(AccessProof, OnlyAMemfdOfItsSizeIsRead) {
  AccessProof proof;
  ASSERT_EQ(proof.create(), 0);
  int pipe_ends[2] = {-1, -1};
  ASSERT_EQ(pipe2(pipe_ends, O_CLOEXEC | O_NONBLOCK), 0);
  const UniqueFd reading(pipe_ends[0]);
  const UniqueFd writing(pipe_ends[1]);
  const UniqueFd file(open("/proc/self/exe", O_PATH | O_CLOEXEC));
  const UniqueFd longer(memfd_create("longer", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(longer.get(), 4096), 0);
  for (const int number : {reading.get(), file.get(), longer.get(), -1, 1'000'000}) {
    EXPECT_EQ(proof.read_peer(getpid(), number), EPERM) << number;
  }
  EXPECT_EQ(proof.read_peer(0, proof.descriptor()), EPERM) << "a process that is not seen from here";
}

/// Drops all capabilities and keeps the user. Returns false if the process had none.
bool give_up_capabilities() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[2] = {};
  if (syscall(SYS_capget, &header, sets) != 0 || sets[0].permitted == 0) return false;
  std::memset(sets, 0, sizeof(sets));
  return syscall(SYS_capset, &header, sets) == 0;
}

/// The answer of the owner of `qpn` to a request without a proof. EPIPE: no answer, and the connection has ended.
int answer_to(std::uint32_t qpn, Request request, UniqueFd& fd, std::byte& read) {
  const UniqueFd socket = connect_to(block_socket_name(qpn >> kQpnBlockBits));
  if (!socket || !send_packet(socket.get(), std::as_bytes(std::span(&request, 1)), std::span(&read, 1))) return errno;
  Answer answer;
  const ssize_t received =
      receive_packet(socket.get(), std::as_writable_bytes(std::span(&answer, 1)), std::span(&read, 1), &fd, 20'000);
  return received < static_cast<ssize_t>(sizeof(answer)) ? EPIPE : answer.error;
}

/// A process to which the kernel refuses access tries all requests of the socket.
void try_all(const QueueInfo& target) {
  std::byte read{0};
  const iovec here{&read, 1};
  const iovec there{reinterpret_cast<void*>(target.address), 1};
  ASSERT_EQ(process_vm_readv(getppid(), &here, 1, &there, 1, 0), -1);
  ASSERT_EQ(errno, EPERM);
  int error = 0;
  EXPECT_EQ(Peer::connect(target.qpn, error), nullptr);
  EXPECT_EQ(error, EPERM);
  for (const RequestKind kind :
       {RequestKind::kHello, RequestKind::kProve, RequestKind::kQueuePair, RequestKind::kArena, RequestKind::kWrite,
        RequestKind::kRead, RequestKind::kFetchAdd, RequestKind::kCompareSwap, RequestKind::kInvalidate,
        RequestKind::kFail, RequestKind::kLimit, RequestKind::kReleased, RequestKind::kDetach}) {
    Request request;
    request.kind = kind;
    request.qpn = target.qpn;
    request.argument = kind == RequestKind::kFail ? static_cast<std::uint32_t>(IBV_EVENT_QP_ACCESS_ERR) : 1;
    request.rkey = target.rkey;
    request.address = target.address;
    request.length = 1;
    request.operand = 1;
    UniqueFd fd;
    read = std::byte{9};
    EXPECT_EQ(answer_to(target.qpn, request, fd, read), is_report(kind) ? EPIPE : EPERM) << static_cast<int>(kind);
    EXPECT_FALSE(fd) << static_cast<int>(kind);
    EXPECT_EQ(read, std::byte{9}) << static_cast<int>(kind);
  }
}

TEST(AccessProof, TheSameUserWithoutItsCapabilitiesReadsAndWritesNothing) {
  Child child([](Line line) {
    const QueueInfo target = line.receive();
    const bool tries = give_up_capabilities();
    if (tries) try_all(target);
    line.send({.rkey = tries});
    (void)line.receive();
  });
  Node node;
  Qp qp(node);
  Memory memory(node, 4096, kAllRemote, true);
  memory.data[0] = std::byte{7};
  qp.connect_to(qp.number());
  child.line().send({qp.number(), memory.mr->rkey, memory.address()});
  const bool tried = child.line().receive().rkey != 0;
  EXPECT_EQ(memory.data[0], std::byte{7});
  EXPECT_EQ(state_of(qp), IBV_QPS_RTS) << "what the other reported has been believed";
  child.line().send({});
  EXPECT_EQ(child.wait(), 0);
  if (!tried) GTEST_SKIP() << "wants a process with capabilities: root";
}

/// Sends a request that carries `descriptors`.
void send_with_descriptors(const UniqueFd& socket, std::span<const int> descriptors) {
  Request request;
  request.kind = RequestKind::kArena;
  iovec whole{&request, sizeof(request)};
  alignas(cmsghdr) std::array<char, CMSG_SPACE(4 * sizeof(int))> control{};
  msghdr message{};
  message.msg_iov = &whole;
  message.msg_iovlen = 1;
  message.msg_control = control.data();
  message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
  cmsghdr* const rights = CMSG_FIRSTHDR(&message);
  rights->cmsg_level = SOL_SOCKET;
  rights->cmsg_type = SCM_RIGHTS;
  rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
  std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  EXPECT_EQ(sendmsg(socket.get(), &message, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof(request)));
}

/// Passes unexpected descriptors, sends requests without reading the answers, and holds connections.
std::vector<UniqueFd> hold_up(std::uint32_t qpn) {
  constexpr std::size_t kConnections = 2 * FewDescriptors::kDescriptors;
  constexpr int kRequests = 5000;  // more than a socket can hold
  const std::string name = block_socket_name(qpn >> kQpnBlockBits);
  std::vector<UniqueFd> held;
  const std::vector<int> passed(4, STDIN_FILENO);
  for (std::size_t count = 1; count <= passed.size(); ++count) {
    held.push_back(connect_to(name));
    send_with_descriptors(held.back(), std::span(passed).first(count));
  }
  Request request;
  request.kind = RequestKind::kArena;
  held.push_back(connect_to(name));
  for (int i = 0; i < kRequests && send_packet(held.back().get(), std::as_bytes(std::span(&request, 1))); ++i) continue;
  while (held.size() < kConnections) held.push_back(connect_to(name));
  return held;
}

TEST(AccessProof, TheSameUserWithoutItsCapabilitiesDelaysAndUsesNothing) {
  Child child([](Line line) {
    const QueueInfo target = line.receive();
    const bool tries = give_up_capabilities();
    std::vector<UniqueFd> held;
    if (tries) held = hold_up(target.qpn);
    line.send({.rkey = tries});
    (void)line.receive();
  });
  const FewDescriptors few;
  Node node;
  Qp qp(node);
  int error = 0;
  ASSERT_NE(Peer::connect(qp.number(), error), nullptr) << error;  // creates the objects that all initiators share
  const std::size_t before = open_descriptors();
  child.line().send({.qpn = qp.number()});
  const bool tried = child.line().receive().rkey != 0;
  EXPECT_LE(open_descriptors(), before + FewDescriptors::kDescriptors / 4);
  EXPECT_NE(Peer::connect(qp.number(), error), nullptr) << error;
  child.line().send({});
  EXPECT_EQ(child.wait(), 0);
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (open_descriptors() > before && std::chrono::steady_clock::now() < end) sched_yield();
  EXPECT_LE(open_descriptors(), before);
  if (!tried) GTEST_SKIP() << "wants a process with capabilities: root";
}

/// A process that may not read this process's memory is treated like another host: sharing in the opposite direction is
/// refused, too.
TEST(AccessProof, AnInitiatorDoesNotShareWithATargetThatMayNotInspectIt) {
  Child child([](Line line) {
    const bool gave_up = give_up_capabilities();
    Node node;
    Qp qp(node);
    line.send({.qpn = qp.number(), .rkey = gave_up});
    (void)line.receive();
  });
  const QueueInfo info = child.line().receive();
  int error = 0;
  const auto peer = Peer::connect(info.qpn, error);
  child.line().send({});
  EXPECT_EQ(child.wait(), 0);
  if (info.rkey == 0) GTEST_SKIP() << "wants a process with capabilities: root";
  EXPECT_EQ(peer, nullptr);
  EXPECT_EQ(error, EPERM);
}

TEST(AccessProof, PeersCannotWriteTheTableOfRegistrations) {
  MrTable table;
  ASSERT_TRUE(table.create());
  const std::uint32_t key = table.add({.pd = 1, .address = 4096, .length = 4096});
  ASSERT_NE(key, 0U);
  const std::size_t bytes = MrTable::kEntries * sizeof(MrEntry);
  const Mapping readable(table.fd(), 0, bytes, false);
  ASSERT_FALSE(readable.empty());
  const std::span<const MrEntry> seen(reinterpret_cast<const MrEntry*>(readable.data()), MrTable::kEntries);
  EXPECT_NE(find_range(seen, key, 1, 4096, 8, 0), nullptr);
  EXPECT_TRUE(Mapping(table.fd(), 0, bytes, true).empty());
  const std::byte one{1};
  EXPECT_EQ(pwrite(table.fd(), &one, 1, 64), -1);
  // Opened again by path, as any process of the user can do.
  const UniqueFd again(open(("/proc/self/fd/" + std::to_string(table.fd())).c_str(), O_RDWR | O_CLOEXEC));
  ASSERT_TRUE(again);
  EXPECT_TRUE(Mapping(again.get(), 0, bytes, true).empty());
  EXPECT_NE(mprotect(readable.data(), 4096, PROT_READ | PROT_WRITE), 0);
}

/// TCP still works between them.
TEST(AccessProof, AProcessThatMayNotShareMemoryIsReachedByTcp) {
  Child child([](Line line) {
    (void)give_up_capabilities();
    Node node;
    Qp qp(node);
    Memory memory(node);
    introduce(line, qp, memory);
    (void)line.receive();
  });
  Node node;
  Qp qp(node, {.timeout = 18});  // 2 s: the child may be slower
  Memory memory(node);
  const QueueInfo peer = introduce(child.line(), qp, memory);
  memory.fill(3);
  ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 64)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_READ, 2, peer.address, peer.rkey), memory.slice(64, 64)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(memory.data, memory.data + 64, 64), 0);
  child.line().send({});
  EXPECT_EQ(child.wait(), 0);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
