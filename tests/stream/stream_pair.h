// stream_pair.h - two ends of a stream in one process, over soft0, without a session.
#pragma once

#include <gtest/gtest.h>

#include <cstring>
#include <future>
#include <memory>
#include <random>
#include <vector>

#include "endpoint/endpoint_pair.h"
#include "rdmacomm/stream.h"

namespace rdmacomm::testing {

inline constexpr const char* kStreamChannel = "stream";

/// Small, so that tests reach every boundary often.
inline StreamOptions small_stream() {
  return {.block_bytes = 1024, .write_blocks = 4, .read_blocks = 4, .borrowed_blocks = 2};
}

/// An endpoint with channels for `streams` streams. A SEND without a posted receive fails at once, because streams must
/// never cause one.
inline HcaConfig config_for(const StreamOptions& options, int streams = 1, PollingMode mode = PollingMode::kBusyPoll) {
  HcaConfig config{.channels = {}, .polling_mode = mode};
  for (int i = 0; i < streams; ++i) {
    config.channels.push_back(options.channel(kStreamChannel + (i == 0 ? "" : std::to_string(i))));
    config.channels.back().adapter.rnr_retry = 0;
  }
  config.channels.push_back({.name = kControlChannel});
  return config;
}

inline void expect_ok(const Status& status) {
  EXPECT_TRUE(status.ok()) << status.message();
}

/// No two neighbouring bytes, and no two blocks, are equal.
inline std::vector<std::byte> pattern(std::size_t bytes, std::size_t from = 0) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>((from + i) * 31 + (from + i) / 251);
  return data;
}

/// Like iWARP devices: data is sent with headers.
struct WithoutImmediateData {};

struct StreamPair {
  StreamPair(const StreamOptions& options, WithoutImmediateData)
      : ends([&] {
          EndPointPair pair(config_for(options));
          const_cast<DeviceLimits&>(pair.device->limits()).immediate_data = false;
          return pair;
        }()) {
    start(options, options);
  }
  explicit StreamPair(const StreamOptions& options = small_stream(), PollingMode mode = PollingMode::kBusyPoll)
      : StreamPair(options, options, mode) {}
  StreamPair(const StreamOptions& client_options, const StreamOptions& server_options,
             PollingMode mode = PollingMode::kBusyPoll)
      : ends(config_for(client_options, 1, mode), config_for(server_options, 1, mode)) {
    start(client_options, server_options);
  }
  void start(const StreamOptions& client_options, const StreamOptions& server_options) {
    auto opening = std::async(std::launch::async, [&] { return open(ends.server, server_options); });
    client = open(ends.client, client_options);
    server = opening.get();
  }
  static RDMAStream open(const std::shared_ptr<EndPointCore>& endpoint, const StreamOptions& options,
                         const std::string& name = kStreamChannel) {
    auto opened = RDMAStream::open(endpoint, *endpoint->channel(name), options, soon());
    EXPECT_TRUE(opened.has_value()) << opened.status().message();
    return opened ? std::move(*opened) : RDMAStream();
  }

  EndPointPair ends;
  RDMAStream client;
  RDMAStream server;
};

/// Reads until the end.
inline std::vector<std::byte> read_all(RDMAStream& from) {
  std::vector<std::byte> all;
  std::array<std::byte, 700> some;
  for (;;) {
    const auto count = from.read(some, soon());
    EXPECT_TRUE(count.has_value()) << count.status().message();
    if (!count || *count == 0) return all;
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(*count));
  }
}

}  // namespace rdmacomm::testing
