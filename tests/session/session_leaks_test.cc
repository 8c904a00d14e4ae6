// Connections and sessions that have ended leave nothing behind.
#include <algorithm>
#include <fstream>
#include <iterator>

#include "session/session_test_tools.h"
#include "support/allocation_counter.h"

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test

/// Number of memory mappings of this process: each connection creates some.
std::size_t mappings() {
  std::ifstream maps("/proc/self/maps");
  return static_cast<std::size_t>(
      std::count(std::istreambuf_iterator<char>(maps), std::istreambuf_iterator<char>(), '\n'));
}

TEST(SessionLeaks, AThousandConnectsLeakNothing) {
  ServerSession server({.address = {.host = "127.0.0.1", .port = 0}});
  ASSERT_TRUE(server.start().ok());
  ClientSession client({.address = {.host = "127.0.0.1", .port = server.port()}});
  const auto cycle = [&] {
    auto at_client = client.connect();
    ASSERT_TRUE(at_client.has_value()) << at_client.error().message();
    auto at_server = server.accept(soon());
    ASSERT_TRUE(at_server.has_value()) << at_server.error().message();
    EXPECT_TRUE((*at_client).close().ok());
    EXPECT_TRUE((*at_server).close().ok());
  };
  for (int i = 0; i < 100; ++i) cycle();  // queues and caches reach their final size
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  const std::size_t mapped = mappings();
  const std::int64_t held = held_allocations();
  for (int i = 0; i < 1000; ++i) cycle();
  expect_back_to(descriptors, threads);
  // The C library keeps stacks and arenas of threads that have ended. Their number varies.
  EXPECT_LE(mappings(), mapped + 100);
  EXPECT_LE(held_allocations(), held + 100) << "one for every tenth connection would be seen";
}

TEST(SessionLeaks, SessionsThemselvesLeaveNothing) {
  const auto run = [] {
    auto server = make_server();
    ASSERT_TRUE(server->start().ok());
    auto client = make_client(*server);
    ASSERT_TRUE(client->connect().has_value());
  };
  run();
  const std::size_t descriptors = open_descriptors();
  const std::size_t threads = running_threads();
  for (int i = 0; i < 10; ++i) run();
  expect_back_to(descriptors, threads);
}

}  // namespace
}  // namespace rdmacomm
