// Servers whose name temporarily cannot be looked up. This test's resolver replaces the system's.
#include <dlfcn.h>
#include <gmock/gmock.h>
#include <netdb.h>

#include <atomic>
#include <condition_variable>
#include <future>
#include <mutex>
#include <string>

#include "session/session_test_tools.h"

namespace {

std::atomic<int> lookups{0};
/// Blocks lookups of "silent.example". They run on threads that may outlive their callers.
struct Silence {
  std::mutex mutex;
  std::condition_variable changed;
  int inside = 0;
  bool over = false;

  void keep() {
    std::unique_lock lock(mutex);
    ++inside;
    changed.notify_all();
    changed.wait(lock, [&] { return over; });
    --inside;
    changed.notify_all();
  }
  void wait_for(int number) {
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return inside == number; });
  }
  /// Ends the blocked lookups and waits until they have returned. Abandoned lookups use memory of their own, never that
  /// of calls that have returned.
  void end() {
    std::unique_lock lock(mutex);
    over = true;
    changed.notify_all();
    changed.wait(lock, [&] { return inside == 0; });
    over = false;
  }
};
Silence silence;

}  // namespace

/// Replaces the function in this whole program. Other hosts are passed to the system's function.
extern "C" int getaddrinfo(const char* host, const char* service, const addrinfo* hints, addrinfo** found) {
  const std::string name = host == nullptr ? "" : host;
  if (name == "never.example" || (name == "later.example" && lookups.fetch_add(1) % 3 != 2)) return EAI_AGAIN;
  if (name.starts_with("silent.example") && (hints->ai_flags & AI_NUMERICHOST) == 0) {
    silence.keep();
    return EAI_AGAIN;
  }
  using Function = int (*)(const char*, const char*, const addrinfo*, addrinfo**);
  static const auto system = reinterpret_cast<Function>(dlsym(RTLD_NEXT, "getaddrinfo"));
  return system(name == "later.example" ? "127.0.0.1" : host, service, hints, found);
}

namespace rdmacomm {
namespace {

using namespace rdmacomm::testing;  // NOLINT(google-build-using-namespace): the tools of this test
using ::testing::HasSubstr;

TestClient client_of(const char* host, std::uint16_t port, std::chrono::milliseconds connect_timeout) {
  SessionOptions options = local_options(port);
  options.address.host = host;
  options.tcp.connect_timeout = connect_timeout;
  return TestClient(options);
}

TEST(SessionLookup, IsRetriedForTheDeviceAndForTheConnection) {
  const auto server = make_server();
  ASSERT_TRUE(server->start().ok());
  lookups = 0;
  const auto client = client_of("later.example", server->port(), std::chrono::seconds(20));
  const auto endpoint = client->connect();
  EXPECT_TRUE(endpoint) << endpoint.status().message();
  EXPECT_EQ(lookups, 6) << "two failures and an answer for each";
}

TEST(SessionLookup, AFinalFailureNamesTheTimeThatItTook) {
  const auto endpoint = client_of("never.example", 1, std::chrono::milliseconds(50))->connect();
  EXPECT_EQ(endpoint.code(), std::errc::resource_unavailable_try_again);
  EXPECT_THAT(endpoint.status().message(), HasSubstr("never.example"));
  EXPECT_THAT(endpoint.status().message(), HasSubstr("gave up after"));
}

TEST(SessionLookup, OfAResolverThatDoesNotAnswerEndsInTimeAndByStop) {
  const auto endpoint = client_of("silent.example", 1, std::chrono::milliseconds(50))->connect();
  EXPECT_EQ(endpoint.code(), std::errc::resource_unavailable_try_again);
  EXPECT_THAT(endpoint.status().message(), HasSubstr("no name server has answered yet"));
  silence.wait_for(1);  // this lookup is abandoned
  const auto client = client_of("silent.example", 1, std::chrono::hours(1));
  auto stopped = std::async(std::launch::async, [&] { return client->connect().status(); });
  silence.wait_for(2);
  client->stop();
  EXPECT_EQ(stopped.get().code(), Errc::kStopped);
  silence.end();
}

/// The device is already open, so that only the server looks up the name.
TEST(SessionLookup, OfAServersOwnHostEndsInTimeAndByStop) {
  SessionOptions options = local_options();
  options.address.host = "silent.example";
  options.shared_device = RDMADevice::open({.name = "soft0"}).value();
  options.tcp.connect_timeout = std::chrono::milliseconds(50);
  const Status late = make_server(options)->start();
  EXPECT_EQ(late.code(), std::errc::resource_unavailable_try_again) << late.message();
  options.tcp.connect_timeout = std::chrono::hours(1);
  const auto server = make_server(options);
  auto stopped = std::async(std::launch::async, [&] { return server->start(); });
  silence.wait_for(2);
  server->stop();
  EXPECT_EQ(stopped.get().code(), Errc::kStopped);
  silence.end();
}

TEST(SessionLookup, AHostWithAColonIsNotLookedUp) {
  for (const char* const host : {"silent.example:5", "[silent.example:5]", "a:b"}) {
    const auto listening = TCPListener::listen({.host = host, .port = 0});
    EXPECT_EQ(listening.code(), Errc::kInvalidArgument) << listening.status().message();
  }
}

}  // namespace
}  // namespace rdmacomm
