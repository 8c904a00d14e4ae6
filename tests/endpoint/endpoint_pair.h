// endpoint_pair.h - two endpoints of one process, connected over soft0, without a session.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <future>
#include <memory>

#include "connector/tcp_pair.h"
#include "endpoint/endpoint_core.h"

namespace rdmacomm::testing {

inline std::shared_ptr<DeviceCore> open_soft_device() {
  auto device = DeviceCore::open({.name = "soft0"});
  EXPECT_TRUE(device.has_value()) << device.status().message();
  return std::move(*device);
}

/// One of the two channels of the default HcaConfig.
inline ChannelCore& data_of(const EndPointCore& endpoint) {
  return *endpoint.channel(kDataChannel);
}
inline ChannelCore& control_of(const EndPointCore& endpoint) {
  return *endpoint.channel(kControlChannel);
}

struct EndPointPair {
  explicit EndPointPair(const HcaConfig& config = {}) : EndPointPair(config, config) {}
  EndPointPair(const HcaConfig& client_config, const HcaConfig& server_config,
               std::shared_ptr<DeviceCore> on = open_soft_device())
      : device(std::move(on)) {
    TcpPair tcp;
    introduce(*tcp.client, *tcp.server);
    client = make(std::move(tcp.client), client_config);
    server = make(std::move(tcp.server), server_config);
    if (!client || !server) return;
    connected = join(*client, *server);
    const Status other = join(*server, *client);
    if (connected) connected = other;
    EXPECT_TRUE(client->mark_established().ok());
    EXPECT_TRUE(server->mark_established().ok());
  }

  /// Waits until the peer's TCP connection ends, as a session's control thread does.
  static void watch(EndPointCore& endpoint) {
    const WatchedFd watched = endpoint.connector().watched();
    pollfd waited{watched.fd, static_cast<short>(watched.events), 0};
    EXPECT_EQ(::poll(&waited, 1, 20'000), 1);
    endpoint.check_connection();
  }

  static Status join(EndPointCore& one, const EndPointCore& other) {
    Status met = one.set_peer(other.description());
    return met ? one.connect(soon()) : met;
  }
  static void introduce(Connector& a, Connector& b) {
    auto other =
        std::async(std::launch::async, [&] { return b.exchange_hello(Hello::of_this_process(), soon()).code(); });
    EXPECT_FALSE(a.exchange_hello(Hello::of_this_process(), soon()).code());
    EXPECT_FALSE(other.get());
  }

  std::shared_ptr<EndPointCore> make(std::unique_ptr<Connector> connector, const HcaConfig& config) {
    auto made = EndPointCore::create({.device = device, .connector = std::move(connector), .config = config});
    EXPECT_TRUE(made.has_value()) << made.status().message();
    return made ? std::move(*made) : nullptr;
  }

  std::shared_ptr<DeviceCore> device;
  std::shared_ptr<EndPointCore> client;
  std::shared_ptr<EndPointCore> server;
  Status connected;
};

}  // namespace rdmacomm::testing
