// Between hosts, a polling thread reads the sockets itself, and epoll does not watch them meanwhile. When polling ends,
// later data must not be lost, nor data that could not be sent before.
#include <gtest/gtest.h>
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "softdev/tcp/manual_scene.h"
#include "softdev/tcp/tcp_raw_client.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// An incoming message wakes the serving thread unless a poll finds it first. If polls find messages, the thread leaves
/// the sockets to them. This number of messages is enough for that.
constexpr std::uint32_t kMessages = 20;
template <typename Between>
void be_left_to_polls(ManualScene& scene, const Between& between) {
  for (std::uint32_t i = 0; i < kMessages; ++i) {
    ASSERT_EQ(scene.qp.post_recv(scene.memory.slice(0, 64), 1), 0);
    scene.poll_in_vain();
    scene.send(0);
    EXPECT_EQ(scene.qp.next().opcode, IBV_WC_RECV);
    ASSERT_NO_FATAL_FAILURE(between());
  }
  scene.poll_in_vain();
}

TEST(TcpPolling, ARequestThatArrivesAfterPollingIsExecuted) {
  ManualScene scene;
  be_left_to_polls(scene, [] {});
  scene.send(0);
  while (scene.next_answer().done != kMessages + 1) continue;
}

/// More data than sockets can hold: the rest is sent when there is room, and by then only epoll reports that.
TEST(TcpPolling, BytesThatDidNotFitTheSocketAreSentAfterPolling) {
  constexpr std::size_t kMuch = 64U << 20;
  ManualScene scene;
  Memory memory(scene.node, kMuch);
  memory.fill(3);
  ASSERT_EQ(scene.qp.post(send_request(3), memory.slice(0, kMuch)), 0);
  EXPECT_EQ(hear<TcpRequest>(scene.connection).length, kMuch);
  std::vector<std::byte> part(1U << 20);
  std::size_t done = 0;
  const auto read_on = [&] {
    ASSERT_EQ(recv(scene.connection.get(), part.data(), part.size(), MSG_WAITALL), static_cast<ssize_t>(part.size()))
        << "after " << done << " bytes";
    ASSERT_EQ(std::memcmp(part.data(), memory.data + done, part.size()), 0);
    done += part.size();
  };
  // A peer that reads nothing for kVanishedAfter counts as vanished, and all those polls may take longer.
  ASSERT_NO_FATAL_FAILURE(be_left_to_polls(scene, read_on));
  while (done < kMuch) ASSERT_NO_FATAL_FAILURE(read_on());
}

/// A signal handler that ends the process interrupts the polling thread, nearly always while it holds a lock.
TEST(TcpPolling, AHandlerThatInterruptsAPollCanEndTheProcess) {
  constexpr int kTimes = 4;
  const auto end = [] {
    alarm(30);  // in case it never ends
    const WireVariable variable("tcp");
    Pair pair;
    struct sigaction action {};
    action.sa_handler = [](int) { std::exit(3); };
    sigaction(SIGUSR1, &action, nullptr);
    static std::atomic<bool> polls{false};
    std::thread sender([poller = pthread_self()] {
      while (!polls) std::this_thread::yield();
      pthread_kill(poller, SIGUSR1);
    });
    sender.detach();
    for (std::uint64_t i = 0;; ++i) {
      (void)pair.a.poll(1);
      if (i == 10'000) polls = true;
    }
  };
  for (int i = 0; i < kTimes; ++i) EXPECT_EXIT(end(), ::testing::ExitedWithCode(3), "") << i;
}

}  // namespace
}  // namespace rdmacomm::softdev::test
