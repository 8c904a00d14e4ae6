// Ways to wait for an endpoint: in the application's own loop, and with the application's own descriptors. Also the
// counts of waits and sleeps.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>

#include <algorithm>
#include <array>
#include <future>

#include "endpoint/endpoint_pair.h"
#include "rdmacomm/buffer.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;
using testing::data_of;
using testing::EndPointPair;
using ::testing::HasSubstr;
using testing::soon;

HcaConfig with(PollingMode mode) {
  HcaConfig config;
  config.polling_mode = mode;
  return config;
}

/// An application's own loop. It sleeps in poll(2), which could include any other descriptors.
Status next_completion(EndPointCore& endpoint, Completion& out) {
  for (;;) {
    const auto polled = endpoint.poll_before_sleep(std::span(&out, 1));
    if (!polled || !polled->empty()) return polled.status();
    pollfd readable{endpoint.fd(), POLLIN, 0};
    if (::poll(&readable, 1, 20'000) != 1) return make_error(Errc::kTimeout, "it was never woken");
  }
}

class Buffers {
 public:
  explicit Buffers(const RDMADevice& device)
      : buffer_(RDMABuffer::allocate(device, {.block_bytes = 64, .block_count = 4})) {
    EXPECT_TRUE(buffer_.has_value()) << buffer_.status().message();
  }
  [[nodiscard]] BufferSlice at(std::size_t block) const { return (*buffer_).at(block); }

 private:
  Result<RDMABuffer> buffer_;
};

TEST(EndPointWait, AnApplicationsLoopLosesNoWakeUp) {
  constexpr int kMessages = 2000;
  const EndPointPair pair(with(PollingMode::kEpoll));
  const Buffers buffers(pair.device);
  const auto side = [&](EndPointCore& endpoint, std::size_t block, bool starts) {
    if (starts && !data_of(endpoint).post_send(buffers.at(block), {.id = 1})) return false;
    for (int received = 0, sent = 0; received < kMessages || sent < kMessages;) {
      Completion completion;
      if (!next_completion(endpoint, completion) || !completion.ok()) return false;
      if (completion.operation == Operation::kSend) {
        ++sent;
        continue;
      }
      ++received;
      if (!data_of(endpoint).post_recv(buffers.at(block + 1))) return false;
      if ((!starts || received < kMessages) && !data_of(endpoint).post_send(buffers.at(block), {.id = 1})) return false;
    }
    return true;
  };
  ASSERT_TRUE(data_of(*pair.client).post_recv(buffers.at(1)));
  ASSERT_TRUE(data_of(*pair.server).post_recv(buffers.at(3)));
  auto server = std::async(std::launch::async, [&] { return side(*pair.server, 2, false); });
  EXPECT_TRUE(side(*pair.client, 0, true));
  EXPECT_TRUE(server.get());
}

TEST(EndPointWait, OneEpollServesManyEndPoints) {
  constexpr std::size_t kPairs = 8;
  constexpr int kRounds = 50;
  std::vector<std::unique_ptr<EndPointPair>> pairs;
  std::vector<std::unique_ptr<Buffers>> buffers;
  std::vector<int> received(kPairs, 0);
  auto epoll = DescriptorSet::create();
  ASSERT_TRUE(epoll.has_value());
  // Polls each endpoint until it finds nothing: the descriptor only signals completions after that.
  const auto serve = [&](std::size_t i) {
    std::array<Completion, 2> batch;
    for (bool found = true; found;) {
      const auto polled = pairs[i]->server->poll_before_sleep(batch);
      ASSERT_TRUE(polled);
      found = !polled->empty();
      for (const Completion& each : *polled) {
        EXPECT_TRUE(each.ok());
        ++received[i];
        ASSERT_TRUE(data_of(*pairs[i]->server).post_recv(buffers[i]->at(0)));
      }
    }
  };
  for (std::size_t i = 0; i < kPairs; ++i) {
    pairs.push_back(std::make_unique<EndPointPair>(with(PollingMode::kEpoll)));
    buffers.push_back(std::make_unique<Buffers>(pairs[i]->device));
    for (int k = 0; k < 4; ++k) ASSERT_TRUE(data_of(*pairs[i]->server).post_recv(buffers[i]->at(0)));
    ASSERT_TRUE((*epoll)->add(pairs[i]->server->fd(), EPOLLIN, [&serve, i](std::uint32_t) { serve(i); }).ok());
    serve(i);
  }
  auto sender = std::async(std::launch::async, [&] {
    bool all_sent = true;
    for (int round = 0; round < kRounds; ++round) {
      for (std::size_t i = 0; i < kPairs; ++i) {
        EndPointCore& client = *pairs[i]->client;
        Completion sent;
        all_sent =
            data_of(client).post_send(buffers[i]->at(1), {.id = 1}) && next_completion(client, sent).ok() && all_sent;
      }
    }
    return all_sent;
  });
  const Deadline deadline = soon();
  const auto all_in = [&] { return std::ranges::all_of(received, [](int count) { return count == kRounds; }); };
  while (!all_in() && !deadline.passed()) (*epoll)->wait(deadline);
  EXPECT_TRUE(sender.get());
  EXPECT_TRUE(all_in());
}

TEST(EndPointWait, StopWakesAnApplicationsLoop) {
  const EndPointPair pair(with(PollingMode::kEpoll));
  auto loop = std::async(std::launch::async, [&] {
    Completion completion;
    return next_completion(*pair.client, completion).code();
  });
  pair.client->stop();
  EXPECT_EQ(loop.get(), Errc::kStopped);
}

TEST(EndPointWait, ALostPeerWakesAnApplicationsLoop) {
  const EndPointPair pair(with(PollingMode::kEpoll));
  const Buffers buffers(pair.device);
  ASSERT_TRUE(data_of(*pair.server).post_recv(buffers.at(0), {.id = 7}));
  auto loop = std::async(std::launch::async, [&] {
    Completion received;
    Completion none;
    const Status first = next_completion(*pair.server, received);
    const Status second = next_completion(*pair.server, none);
    return std::tuple(first.code(), received.id, second.code());
  });
  ASSERT_TRUE(data_of(*pair.client).post_send(buffers.at(1), {.id = 1}));
  Completion sent;
  ASSERT_TRUE(next_completion(*pair.client, sent).ok());
  pair.client->stop();
  EndPointPair::watch(*pair.server);
  EXPECT_EQ(loop.get(), std::tuple(std::error_code(), std::uint64_t{7}, make_error_code(Errc::kPeerClosed)));
}

TEST(EndPointWait, OnlyEpollHasADescriptor) {
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel, PollingMode::kAdaptive}) {
    const EndPointPair pair(with(mode));
    EXPECT_EQ(pair.client->fd(), -1);
    Completion completion;
    const auto refused = pair.client->poll_before_sleep(std::span(&completion, 1));
    EXPECT_EQ(refused.code(), Errc::kNotSupported);
    EXPECT_THAT(refused.error().context, HasSubstr(to_text(mode)));
    EXPECT_EQ(pair.client->watch(0, EPOLLIN, [](std::uint32_t) {}).code(), Errc::kNotSupported);
  }
}

TEST(EndPointWait, LeavesServedEndPointsToTheSession) {
  HcaConfig config = with(PollingMode::kEpoll);
  config.thread_mode = ThreadMode::kThreadPerEndPoint;
  const EndPointPair pair(config);
  Completion completion;
  EXPECT_EQ(pair.client->poll_before_sleep(std::span(&completion, 1)).code(), Errc::kWrongState);
}

TEST(EndPointWait, TheApplicationsDescriptorsAreServedWhileItWaits) {
  const EndPointPair pair(with(PollingMode::kEpoll));
  const Buffers buffers(pair.device);
  ASSERT_TRUE(data_of(*pair.client).post_recv(buffers.at(0), {.id = 1}));
  const UniqueFd order(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK));
  // Data on the descriptor makes the server send a message, which ends the wait.
  const auto obey = [&](std::uint32_t events) {
    EXPECT_EQ(events, static_cast<std::uint32_t>(EPOLLIN));
    eventfd_t count = 0;
    EXPECT_EQ(eventfd_read(order.get(), &count), 0);
    EXPECT_TRUE(data_of(*pair.server).post_send(buffers.at(1), {.id = 2}));
  };
  EXPECT_EQ(pair.client->watch(order.get(), EPOLLIN, {}).code(), Errc::kInvalidArgument);
  ASSERT_TRUE(pair.client->watch(order.get(), EPOLLIN, obey).ok());
  auto waiting = std::async(std::launch::async, [&] {
    const auto completion = pair.client->next(soon());
    return completion && completion->id == 1;
  });
  EXPECT_EQ(eventfd_write(order.get(), 1), 0);
  EXPECT_TRUE(waiting.get());
  pair.client->unwatch(order.get());
}

TEST(EndPointWait, CountsHowOftenItSlept) {
  for (const PollingMode mode : {PollingMode::kBusyPoll, PollingMode::kCompletionChannel, PollingMode::kEpoll}) {
    const EndPointPair pair(with(mode));
    EXPECT_EQ(pair.client->next(Deadline::after(5ms)).code(), Errc::kTimeout);
    const WaitCounts counts = pair.client->wait_counts();
    EXPECT_EQ(counts.waits, 1U);
    EXPECT_EQ(counts.sleeps > 0, sleeps(mode)) << to_text(mode);
    EXPECT_EQ(counts.asleep > 0ns, sleeps(mode)) << to_text(mode);
  }
}

TEST(EndPointWait, CountsEachQueueAndAllTogether) {
  HcaConfig config = with(PollingMode::kCompletionChannel);
  config.channels.push_back({.name = "own", .own_completion_queue = true});
  const EndPointPair pair(config);
  ChannelCore& own = *pair.client->channel("own");
  const auto wait_in_vain = [&](auto... channel) {
    EXPECT_EQ(pair.client->next(channel..., Deadline::after(1ms)).code(), Errc::kTimeout);
  };
  wait_in_vain(std::ref(own));
  EXPECT_EQ(pair.client->wait_counts(own).waits, 1U);
  EXPECT_EQ(pair.client->wait_counts(data_of(*pair.client)).waits, 0U);
  EXPECT_EQ(pair.client->wait_counts().waits, 1U);
  wait_in_vain();
  EXPECT_EQ(pair.client->wait_counts(data_of(*pair.client)).waits, 1U);
  const WaitCounts all = pair.client->wait_counts();
  EXPECT_EQ(all.waits, 2U);
  EXPECT_EQ(all.slept, 2U);
  EXPECT_EQ(all.sleeps, pair.client->wait_counts(own).sleeps + pair.client->wait_counts(data_of(*pair.client)).sleeps);
  EXPECT_EQ(pair.client->wait_counts(data_of(*pair.server)).waits, 0U);  // the channel belongs to the other endpoint
}

TEST(EndPointWait, AdaptiveDoesNotSleepIfTheAnswerArrivesSoon) {
  HcaConfig config = with(PollingMode::kAdaptive);
  config.waiting.spin = WaitOptions::kMaxSpin;
  const EndPointPair pair(config);
  const Buffers buffers(pair.device);
  for (int i = 0; i < 100; ++i) {
    ASSERT_TRUE(data_of(*pair.server).post_recv(buffers.at(1)));
    ASSERT_TRUE(data_of(*pair.client).post_send(buffers.at(0), {.id = 1}));
    ASSERT_TRUE(pair.client->next(soon()));
    ASSERT_TRUE(pair.server->next(soon()));
  }
  EXPECT_EQ(pair.client->wait_counts().sleeps, 0U);
  EXPECT_EQ(pair.client->wait_counts().spun_share(), 1.0);
}

}  // namespace
}  // namespace rdmacomm
