// Two processes: normal operation between them, and the death of one of them.
#include <dirent.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <fstream>
#include <iterator>
#include <map>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/context/soft_context.h"
#include "softdev/local/peer.h"
#include "softdev/local/two_processes.h"

namespace rdmacomm::softdev::test {
namespace {

QpSettings patient() {
  QpSettings settings;
  settings.timeout = 0;  // no timeout
  return settings;
}

/// Acts as a target until it is killed.
void idle_target(Line line, bool own_memory) {
  Node node;
  Qp qp(node, patient());
  Memory memory(node, 1 << 20, kAllRemote, own_memory);
  introduce(line, qp, memory);
  pause();
}

TEST(Processes, OperationsCompleteWithoutTheTargetsThreads) {
  for (const bool own_memory : {false, true}) {
    Child child([own_memory](Line line) { idle_target(line, own_memory); });
    Node node;
    Qp qp(node);
    Memory memory(node, 1 << 20);
    const QueueInfo peer = introduce(child.line(), qp, memory);
    memory.fill(5);
    for (const std::size_t size : {8U, 4096U, 1U << 19}) {
      ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, size)), 0);
      EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
      ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_READ, 2, peer.address, peer.rkey), memory.slice(1 << 19, size)), 0);
      EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
      EXPECT_EQ(std::memcmp(memory.data, memory.data + (1 << 19), size), 0);
    }
  }
}

TEST(Processes, AStoppedTargetsMemoryIsStillAccessed) {
  Child child([](Line line) { idle_target(line, false); });
  Node node;
  Qp qp(node);
  Memory memory(node);
  const QueueInfo peer = introduce(child.line(), qp, memory);
  auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey);
  child.stop();  // before the first request
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(qp.post(write, memory.slice(0, 8)), 0);
    EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
  }
}

/// The process has the same number, but the memory that its peers know now belongs to another program.
TEST(Processes, AProgramThatReplacedTheTargetIsNotWrittenTo) {
  Child child([](Line line) {
    Node node;
    Qp qp(node);
    Memory memory(node, 4096, kAllRemote, true);
    line.send({qp.number(), memory.mr->rkey, memory.address()});
    (void)line.receive();
    dup2(line.fd, STDOUT_FILENO);  // exec does not close it
    execl("/bin/sh", "sh", "-c", "echo here; exec sleep 1000", nullptr);
  });
  const QueueInfo target = child.line().receive();
  int error = 0;
  const auto peer = Peer::connect(target.qpn, error);
  ASSERT_NE(peer, nullptr) << error;
  std::array<std::byte, 8> bytes{};
  ASSERT_EQ(peer->read_by_system_call(bytes.data(), target.address, bytes.size()), 0);
  ASSERT_EQ(peer->check_system_calls(), 0);
  child.line().send({});
  char word[8];
  ASSERT_EQ(read(child.line().fd, word, sizeof(word)), 5) << "the other program runs";
  EXPECT_EQ(peer->read_by_system_call(bytes.data(), target.address, bytes.size()), ESRCH);
  EXPECT_EQ(peer->check_system_calls(), ESRCH) << "asked before anything is written";
}

/// While it lives, this process has used up all descriptors that it may have.
class NoFreeDescriptor {
 public:
  NoFreeDescriptor() {
    EXPECT_EQ(getrlimit(RLIMIT_NOFILE, &before_), 0);
    const rlimit few{std::min<rlim_t>(before_.rlim_cur, 512), before_.rlim_max};
    EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &few), 0);
    for (int fd = dup(0); fd >= 0; fd = dup(0)) all_.emplace_back(fd);
  }
  NoFreeDescriptor(const NoFreeDescriptor&) = delete;
  NoFreeDescriptor& operator=(const NoFreeDescriptor&) = delete;
  ~NoFreeDescriptor() { EXPECT_EQ(setrlimit(RLIMIT_NOFILE, &before_), 0); }

 private:
  rlimit before_{};
  std::vector<UniqueFd> all_;
};

TEST(Processes, AConnectWithoutAFreeDescriptorFailsWithTheReason) {
  Child child([](Line line) {
    Node node;
    QpSettings with_channel = patient();
    with_channel.with_channel = true;
    Qp first(node, with_channel);
    Qp second(node, with_channel);
    Memory memory(node);
    line.send({second.number(), 0, 0});
    second.connect_to(line.receive().qpn);
    introduce(line, first, memory);
    pause();
  });
  Node node;
  Qp first(node);
  Qp second(node);
  Memory memory(node);
  const QueueInfo other = child.line().receive();
  child.line().send({second.number(), 0, 0});
  const QueueInfo peer = introduce(child.line(), first, memory);
  ASSERT_EQ(second.to_init(), 0);
  {
    const NoFreeDescriptor none;
    EXPECT_EQ(second.to_rtr(other.qpn), EMFILE);
  }
  ASSERT_EQ(first.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 8)), 0);
  EXPECT_EQ(first.next().status, IBV_WC_SUCCESS) << "it is connected to the same process";
  EXPECT_EQ(second.to_rtr(other.qpn), 0) << "as soon as there is one again";
}

TEST(Processes, AConnectWithoutADescriptorForThePeerNamesTheReason) {
  Child child([](Line line) {
    Node node;
    Qp qp(node);
    line.send({.qpn = qp.number()});
    pause();
  });
  Node node;
  Qp qp(node);
  const QueueInfo peer = child.line().receive();
  ASSERT_EQ(qp.to_init(), 0);
  {
    const NoFreeDescriptor none;
    EXPECT_EQ(qp.to_rtr(peer.qpn), EMFILE);
  }
  EXPECT_EQ(qp.to_rtr(peer.qpn), 0);
}

/// A stopped target does not read reports. Reporting processes do not wait for it. It gets all reports, in order, when
/// it continues.
TEST(Processes, AStoppedTargetDoesNotDelayReports) {
  Child child([](Line line) {
    Node node;
    Qp qp(node, patient());
    Memory memory(node);
    introduce(line, qp, memory);
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
    while (state_of(qp) != IBV_QPS_ERR && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    line.send({.qpn = state_of(qp) == IBV_QPS_ERR});
    pause();
  });
  Node node;
  Qp qp(node, patient());
  Memory memory(node);
  const QueueInfo peer = introduce(child.line(), qp, memory);
  int error = 0;
  const auto owner = SoftContext::from(node.context.get()).peers().get(peer.qpn, error);
  ASSERT_NE(owner, nullptr) << error;
  child.stop();
  constexpr std::uint32_t kNobody = 0xffffff;
  for (int i = 0; i < 2000; ++i) owner->detach(peer.qpn, kNobody);  // more than the socket can hold
  ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey + 1), memory.slice(0, 8)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_REM_ACCESS_ERR);
  child.resume();
  EXPECT_EQ(child.line().receive().qpn, 1U) << "it was not told that its queue pair has failed";
}

/// Whether a thread of this process sleeps.
bool asleep(pid_t thread) {
  std::ifstream stat("/proc/self/task/" + std::to_string(thread) + "/stat");
  const std::string text(std::istreambuf_iterator<char>(stat), {});
  return text.find(") S") != std::string::npos;
}

TEST(Processes, ConnectingToAStoppedProcessDelaysNoOther) {
  Child stopped([](Line line) {
    Node node;
    Qp qp(node);
    line.send({.qpn = qp.number()});
    pause();
  });
  const QueueInfo info = stopped.line().receive();
  stopped.stop();
  Node node;
  Qp waiting(node);
  std::atomic<pid_t> thread{0};
  std::atomic<bool> through{false};
  std::thread other([&] {
    thread = gettid();
    waiting.connect_to(info.qpn);
    through = true;
  });
  while (thread == 0 || !asleep(thread)) std::this_thread::yield();
  Qp left(node);
  Qp right(node);
  left.connect_to(right.number());
  right.connect_to(left.number());
  EXPECT_FALSE(through) << "it waits for the one that is stopped, and is not waited for";
  stopped.resume();
  other.join();
}

/// The thread of this process with that name; 0 if none exists.
pid_t thread_named(const std::string& name) {
  DIR* const tasks = opendir("/proc/self/task");
  pid_t found = 0;
  while (const dirent* const entry = readdir(tasks)) {
    std::ifstream comm("/proc/self/task/" + std::string(entry->d_name) + "/comm");
    std::string text;
    if (std::getline(comm, text) && text == name) found = std::atoi(entry->d_name);
  }
  closedir(tasks);
  return found;
}

/// A request that waits for a receive is retried while the target of another request is stopped and does not say
/// whether it exists.
TEST(Processes, ARequestToAStoppedTargetDelaysNoOther) {
  Child stopped([](Line line) {
    Node node;
    Qp qp(node);
    line.send({.qpn = qp.number()});
    (void)line.receive();
    Qp late(node);
    line.send({.qpn = late.number()});
    pause();
  });
  const QueueInfo first = stopped.line().receive();
  Node node;
  Qp lost(node, patient());
  Memory memory(node);
  // The number that the child assigns next. It does not exist when this process first looks for it.
  lost.connect_to(first.qpn + 1);
  stopped.line().send({});
  const QueueInfo late = stopped.line().receive();
  ASSERT_EQ(late.qpn, first.qpn + 1);
  stopped.stop();
  ASSERT_EQ(lost.post(rdma_request(IBV_WR_RDMA_WRITE, 1, memory.address(), 1), memory.slice(0, 8)), 0);
  pid_t finder = 0;
  while (finder == 0 || !asleep(finder)) finder = thread_named("soft0-find");
  QpSettings sleeping = patient();
  sleeping.with_channel = true;
  Qp left(node, sleeping);
  Qp right(node);
  left.connect_to(right.number());
  right.connect_to(left.number());
  ASSERT_EQ(ibv_req_notify_cq(left.cq.get(), 0), 0);
  ASSERT_EQ(left.post(send_request(2), memory.slice(0, 8)), 0);
  ASSERT_EQ(right.post_recv(memory.slice(64, 8), 3), 0);
  pollfd readable{left.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 20'000), 1);
  EXPECT_EQ(left.next().status, IBV_WC_SUCCESS);
  // Posting to the queue pair whose target is being looked for is not delayed either.
  ASSERT_EQ(lost.post(rdma_request(IBV_WR_RDMA_WRITE, 4, memory.address(), 1), memory.slice(0, 8)), 0);
  EXPECT_TRUE(lost.poll().empty()) << "it waits for the one that is stopped, and is not waited for";
  stopped.resume();
}

/// As soon as a program has received a message, the sender gets its completion, even if the program then ends without
/// destroying anything.
TEST(Processes, AReceivedMessageCompletesEvenIfTheTargetEnds) {
  Child child([](Line line) {
    Node node;
    Qp qp(node);
    Memory memory(node);
    introduce(line, qp, memory);
    EXPECT_EQ(qp.post_recv(memory.slice(0, 8), 1), 0);
    for (int i = 0; i < 10'000; ++i) (void)qp.poll();
    line.send({});
    (void)qp.next();
    std::exit(0);
  });
  Node node;
  Qp qp(node, patient());
  Memory memory(node);
  introduce(child.line(), qp, memory);
  (void)child.line().receive();
  ASSERT_EQ(qp.post(send_request(1), memory.slice(0, 8)), 0);
  EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
}

TEST(Processes, AKilledTargetEndsRequestsThatWaitForIt) {
  Child child([](Line line) { idle_target(line, false); });
  Node node;
  Qp qp(node, patient());
  Memory memory(node);
  introduce(child.line(), qp, memory);
  ASSERT_EQ(qp.post_recv(memory.slice(0, 8), 7), 0);
  ASSERT_EQ(qp.post(send_request(1), memory.slice(0, 8)), 0);  // no receive there: waits forever
  ASSERT_EQ(qp.post(send_request(2), memory.slice(0, 8)), 0);
  EXPECT_TRUE(qp.poll().empty());
  child.kill();
  std::map<std::uint64_t, ibv_wc_status> outcomes;  // the two queues complete in any order
  for (int i = 0; i < 3; ++i) {
    const ibv_wc wc = qp.next();
    outcomes[wc.wr_id] = wc.status;
  }
  EXPECT_EQ(outcomes[1], IBV_WC_RETRY_EXC_ERR);
  EXPECT_EQ(outcomes[2], IBV_WC_WR_FLUSH_ERR);
  EXPECT_EQ(outcomes[7], IBV_WC_WR_FLUSH_ERR);
}

TEST(Processes, AKilledTargetWakesTheSleeper) {
  Child child([](Line line) { idle_target(line, false); });
  Node node;
  QpSettings settings = patient();
  settings.with_channel = true;
  Qp qp(node, settings);
  Memory memory(node);
  introduce(child.line(), qp, memory);
  ASSERT_EQ(qp.post(send_request(1), memory.slice(0, 8)), 0);
  ASSERT_EQ(ibv_req_notify_cq(qp.cq.get(), 0), 0);
  EXPECT_TRUE(qp.poll().empty());
  child.kill();
  pollfd readable{qp.channel->fd, POLLIN, 0};
  EXPECT_EQ(poll(&readable, 1, 20'000), 1);
  EXPECT_EQ(qp.next().status, IBV_WC_RETRY_EXC_ERR);
}

TEST(Processes, PostsToADeadTargetFail) {
  Child child([](Line line) { idle_target(line, true); });
  Node node;
  Qp qp(node);
  Memory memory(node);
  const QueueInfo peer = introduce(child.line(), qp, memory);
  child.kill();
  ibv_wc last{};
  do {  // until the death is noticed: a WRITE to own memory fails by itself, a SEND would wait
    ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 8)), 0);
    last = qp.next();
  } while (last.status == IBV_WC_SUCCESS);
  EXPECT_EQ(last.status, IBV_WC_RETRY_EXC_ERR);
}

/// An initiator may be killed at any point of its WRITEs and SENDs. The target must still be able to release its
/// memory.
TEST(Processes, AnInitiatorKilledInTheMiddleHarmsNothing) {
  for (int round = 0; round < 20; ++round) {
    Child child([](Line line) {
      Node node;
      Qp qp(node);
      Memory memory(node, 1 << 20);
      const QueueInfo peer = introduce(line, qp, memory);
      for (;;) {
        (void)qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 1 << 20));
        (void)qp.poll();
      }
    });
    Node node;
    Qp qp(node);
    Memory memory(node, 1 << 20);
    introduce(child.line(), qp, memory);
    ASSERT_EQ(qp.post_recv(memory.slice(0, 8), 1), 0);
    for (int i = 0; i < round * 50; ++i) sched_yield();
    child.kill();
    memory.mr.reset();  // must not wait for the dead initiator's hazard flag
    ASSERT_EQ(qp.to_state(IBV_QPS_ERR), 0);
    EXPECT_EQ(qp.next().status, IBV_WC_WR_FLUSH_ERR);
  }
}

/// After the target has released memory, it must not change for its new owner while an initiator keeps writing.
TEST(Processes, DeregisteredMemoryIsNotWrittenAnyMore) {
  Child child([](Line line) {
    Node node;
    Qp qp(node);
    Memory memory(node, 1 << 16);
    std::memset(memory.data, 0xab, memory.size);
    const QueueInfo peer = introduce(line, qp, memory);
    ibv_wc wc{};
    do {
      (void)qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, 1 << 16));
      wc = qp.next();
    } while (wc.status == IBV_WC_SUCCESS);
    ASSERT_EQ(wc.status, IBV_WC_REM_ACCESS_ERR);
  });
  Node node;
  Qp qp(node);
  Memory memory(node, 1 << 16);
  introduce(child.line(), qp, memory);
  std::atomic_ref<unsigned char> first(*reinterpret_cast<unsigned char*>(memory.data));
  while (first.load() != 0xab) sched_yield();
  memory.mr.reset();
  std::memset(memory.data, 0, memory.size);
  EXPECT_EQ(child.wait(), 0);
  EXPECT_TRUE(std::all_of(memory.data, memory.data + memory.size, [](std::byte b) { return b == std::byte{0}; }));
}

TEST(Processes, AtomicsFromTwoProcessesAddUp) {
  constexpr std::uint64_t kEach = 20'000;
  for (const bool own_memory : {false, true}) {
    const std::uint64_t each = own_memory ? kEach / 20 : kEach;
    const auto add_to = [each](Line line) {
      Node node;
      Qp qp(node);
      Memory memory(node);
      const QueueInfo peer = introduce(line, qp, memory);
      for (std::uint64_t i = 0; i < each; ++i) {
        (void)qp.post(atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, i, peer.address, peer.rkey, 1), memory.slice(0, 8));
        ASSERT_EQ(qp.next().status, IBV_WC_SUCCESS);
      }
    };
    Child one(add_to);
    Child two(add_to);
    Node node;
    Qp first(node);
    Qp second(node);
    Memory memory(node, 4096, kAllRemote, own_memory);
    introduce(one.line(), first, memory);
    introduce(two.line(), second, memory);
    EXPECT_EQ(one.wait(), 0);
    EXPECT_EQ(two.wait(), 0);
    EXPECT_EQ(std::atomic_ref(*reinterpret_cast<std::uint64_t*>(memory.data)).load(), 2 * each);
  }
}

int count_entries(const char* folder) {
  DIR* const dir = opendir(folder);
  int count = 0;
  while (readdir(dir) != nullptr) ++count;
  closedir(dir);
  return count;
}

/// Also without ibv_fork_init(3): no memory is pinned, so a page that is copied for parent or child is never a page
/// that a device writes.
TEST(Processes, AForkedChildDoesNotDisturbItsParentNorSeeItsMessages) {
  constexpr auto kBefore = std::byte{1};
  constexpr auto kOfChild = std::byte{7};
  Pair pair;
  Memory from(pair.a_node);
  Memory own(pair.b_node, 4096, kAllRemote, true);
  Memory shared(pair.b_node);
  std::memset(own.data, 1, own.size);
  std::memset(from.data, 9, from.size);
  Child child([&own, &shared](Line line) {
    (void)line.receive();  // the parent's memory has been written
    const bool is_as_it_was = own.data[0] == kBefore;
    own.data[8] = kOfChild;
    const bool is_mapped = msync(shared.data, shared.size, MS_ASYNC) == 0;
    line.send({is_as_it_was ? 1U : 0U, is_mapped ? 1U : 0U, 0});
    (void)line.receive();
  });
  const auto exchange = [&] {
    for (const Memory* const to : {&own, &shared}) {
      const auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, to->address(), to->mr->rkey);
      ASSERT_EQ(pair.a.post(write, from.slice(0, 64)), 0);
      EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
      EXPECT_EQ(std::memcmp(to->data, from.data, 64), 0);
      std::memset(to->data, 0, 64);
    }
    ASSERT_EQ(pair.b.post_recv(own.slice(128, 64), 2), 0);
    ASSERT_EQ(pair.a.post(send_request(3), from.slice(0, 64)), 0);
    EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(own.data + 128, from.data, 64), 0);
  };
  exchange();
  child.line().send({});
  const QueueInfo seen = child.line().receive();
  EXPECT_EQ(seen.qpn, 1U) << "the child has the memory of the moment when it was made";
  EXPECT_EQ(seen.rkey, 0U) << "memory that peers map is not inherited";
  EXPECT_EQ(own.data[8], std::byte{0}) << "the child writes to its own copy";
  exchange();
  child.kill();
  exchange();
}

TEST(Leaks, AThousandPairsLeakNoDescriptorsThreadsOrMappings) {
  { const Pair warm_up; }
  const int descriptors = count_entries("/proc/self/fd");
  const int threads = count_entries("/proc/self/task");
  const auto mappings = [] {
    std::vector<char> text(1 << 20);
    FILE* file = fopen("/proc/self/maps", "r");
    const std::size_t size = fread(text.data(), 1, text.size(), file);
    fclose(file);
    text.resize(size);
    return std::string_view(text.data(), text.size()).find("/memfd:soft0") == std::string_view::npos ? 0 : 1;
  };
  Node a_node;
  Node b_node;
  for (int i = 0; i < 1000; ++i) {
    Qp a(a_node);
    Qp b(b_node);
    a.connect_to(b.number());
    b.connect_to(a.number());
    Memory local(a_node);
    Memory remote(b_node);
    ASSERT_EQ(a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(), remote.mr->rkey), local.slice(0, 8)), 0);
    ASSERT_EQ(a.next().status, IBV_WC_SUCCESS);
  }
  a_node.pd.reset();
  a_node.context.reset();
  b_node.pd.reset();
  b_node.context.reset();
  EXPECT_EQ(count_entries("/proc/self/fd"), descriptors);
  EXPECT_EQ(count_entries("/proc/self/task"), threads);
  EXPECT_EQ(mappings(), 0) << "nothing of the device is mapped any more";
}

}  // namespace
}  // namespace rdmacomm::softdev::test
