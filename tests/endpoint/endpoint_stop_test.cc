// stop() and close() from other threads, at any time from creation to end of an endpoint.
#include <gtest/gtest.h>

#include <latch>
#include <thread>
#include <vector>

#include "endpoint/endpoint_pair.h"

namespace rdmacomm {
namespace {

using testing::EndPointPair;
using testing::soon;
using testing::TcpPair;

/// Like a session that stops while an endpoint is in its handshake. ThreadSanitizer detects reads without a lock.
TEST(EndPointStop, MayBeCalledWhileThePeersDescriptionIsProcessed) {
  for (int round = 0; round < 20; ++round) {
    TcpPair tcp;
    EndPointPair::introduce(*tcp.client, *tcp.server);
    const auto device = testing::open_soft_device();
    auto client = EndPointCore::create({.device = device, .connector = std::move(tcp.client), .config = {}});
    auto server = EndPointCore::create({.device = device, .connector = std::move(tcp.server), .config = {}});
    ASSERT_TRUE(client && server);
    EndPointDescription description = (*server)->description();
    std::latch both(2);
    std::thread stopping([&] {
      both.arrive_and_wait();
      (*client)->stop();
      EXPECT_FALSE((*client)->peer().empty());
    });
    both.arrive_and_wait();
    (void)(*client)->set_peer(std::move(description));  // fails if the queue pairs are stopped already
    (void)(*client)->remote_region("none");
    stopping.join();
    EXPECT_EQ((*client)->status().code(), Errc::kStopped);
  }
}

TEST(EndPointStop, CloseAfterItMayBeCalledByManyThreads) {
  const EndPointPair pair;
  std::vector<std::thread> closing;
  for (int i = 0; i < 4; ++i) {
    closing.emplace_back([&] { EXPECT_TRUE(pair.client->close().ok()); });
  }
  for (std::thread& thread : closing) thread.join();
  EXPECT_TRUE(pair.client->close().ok());
}

}  // namespace
}  // namespace rdmacomm
