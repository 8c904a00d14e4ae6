// A server, a host or a link that comes up late is reached if that happens before connect_timeout.
#include <gmock/gmock.h>
#include <poll.h>

#include <array>
#include <cstdlib>
#include <future>
#include <optional>
#include <string>
#include <vector>

#include "connector/socket.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_listen_socket.h"
#include "support/own_network.h"

namespace rdmacomm {
namespace {

using ::testing::HasSubstr;
using testing::OwnNetwork;
using namespace std::chrono_literals;

constexpr TcpOptions kPatient{.connect_timeout = 60s, .dead_host_after = 1s};

/// The number in "gave up after 1.5 s". Empty if the text does not have one.
std::optional<double> seconds_given_up_after(const std::string& text) {
  const std::string words = "gave up after ";
  const auto at = text.find(words);
  if (at == std::string::npos) return {};
  char* unit = nullptr;
  const double number = std::strtod(text.c_str() + at + words.size(), &unit);
  return std::string(unit).starts_with(" ms") ? number / 1000 : number;
}

class ConnectLater : public ::testing::Test {
 protected:
  void SetUp() override {
    if (!network_.why_not().empty()) GTEST_SKIP() << network_.why_not();
  }
  static std::future<Status> connect_to(const char* host) {
    return std::async(std::launch::async, [host] { return TcpConnection::connect({host, 2020}, kPatient).status(); });
  }

  OwnNetwork network_;
};

TEST_F(ConnectLater, ThisHostsOwnLinkComesUp) {
  auto client = connect_to("127.0.0.1");  // fails with "Network is unreachable" until then
  network_.ip("link set lo up");
  const auto listener = TcpListenSocket::listen({"127.0.0.1", 2020});
  ASSERT_TRUE(listener) << listener.status().message();
  const Status connected = client.get();
  EXPECT_TRUE(connected.ok()) << connected.message();
}

/// Listens, but lets the system drop every connection after the first ones. It does not answer, like a host that is not
/// up.
class FullServer {
 public:
  FullServer() : fd_(open_socket(AF_INET).value()) {
    address_ = resolve({"127.0.0.1", 2020}).value().front();
    EXPECT_EQ(::bind(fd_.get(), address_.get(), address_.length), 0);
    EXPECT_EQ(::listen(fd_.get(), 0), 0);
    for (UniqueFd& each : clients_) {
      each = open_socket(AF_INET).value();
      (void)::connect(each.get(), address_.get(), address_.length);
    }
  }
  /// Accepts connections until `done` returns true.
  template <typename Done>
  void serve_until(Done&& done) {
    std::vector<UniqueFd> taken;
    while (!done()) {
      pollfd waited{fd_.get(), POLLIN, 0};
      if (::poll(&waited, 1, 1) == 1) taken.emplace_back(::accept(fd_.get(), nullptr, nullptr));
    }
  }

 private:
  UniqueFd fd_;
  SocketAddress address_;
  std::array<UniqueFd, 4> clients_;
};

TEST_F(ConnectLater, AServerThatDoesNotAnswerComesUp) {
  network_.ip("link set lo up");
  FullServer server;
  // The connect timeout is longer than the timeout after which a connected but silent host is lost.
  const Status given_up =
      TcpConnection::connect({"127.0.0.1", 2020}, {.connect_timeout = 1500ms, .dead_host_after = 1s}).status();
  EXPECT_EQ(given_up.code(), Errc::kTimeout);
  EXPECT_THAT(given_up.message(), HasSubstr("no answer from 127.0.0.1:2020"));
  EXPECT_GE(seconds_given_up_after(given_up.message()).value_or(0), 1.5) << given_up.message();
  auto client = connect_to("127.0.0.1");
  server.serve_until([&] { return client.wait_for(0s) == std::future_status::ready; });
  const Status connected = client.get();
  EXPECT_TRUE(connected.ok()) << connected.message();
}

TEST_F(ConnectLater, ARouteAppears) {
  network_.ip("link set lo up");
  const Status given_up = TcpConnection::connect({"10.1.0.2", 2020}, {.connect_timeout = 50ms}).status();
  EXPECT_EQ(given_up.code(), std::errc::network_unreachable);
  EXPECT_THAT(given_up.message(), HasSubstr("that a route to the server exists"));
  EXPECT_GE(seconds_given_up_after(given_up.message()).value_or(0), 0.05) << given_up.message();
  auto client = connect_to("10.1.0.2");
  const auto listener = [&] {
    network_.ip("address add 10.1.0.2/32 dev lo");
    return TcpListenSocket::listen({"10.1.0.2", 2020});
  }();
  ASSERT_TRUE(listener) << listener.status().message();
  EXPECT_TRUE(client.get().ok());
}

}  // namespace
}  // namespace rdmacomm
