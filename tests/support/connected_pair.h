// connected_pair.h - two connected channels in one process, each on its own DeviceCore. Most tests of the layers from
// channel upwards start with these.
#pragma once

#include <gtest/gtest.h>

#include <chrono>
#include <deque>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "channel/channel_core.h"

namespace rdmacomm::testing {

/// One end: device, completion queue, channel. Members in creation order.
struct ChannelEnd {
  std::shared_ptr<DeviceCore> device;
  std::unique_ptr<NativeQueue> cq;
  std::unique_ptr<ChannelCore> channel;

  ChannelEnd() = default;
  ChannelEnd(ChannelEnd&&) = default;
  ChannelEnd& operator=(ChannelEnd&&) = delete;  // it would destroy the device first

  /// All remote access that this end's device supports.
  [[nodiscard]] RemoteAccess all_access() const {
    const RemoteAccess access = RemoteAccess::kRead | RemoteAccess::kWrite;
    return device->limits().atomics ? access | RemoteAccess::kAtomic : access;
  }
  /// A buffer on this end's device, with all remote access allowed.
  [[nodiscard]] RDMABuffer buffer(std::size_t bytes) const { return buffer(bytes, all_access()); }
  [[nodiscard]] RDMABuffer buffer(std::size_t bytes, RemoteAccess access) const {
    auto made = RDMABuffer::allocate(device, {.block_bytes = bytes, .remote_access = access});
    EXPECT_TRUE(made.has_value()) << made.error().message();
    return made ? std::move(made).value() : RDMABuffer();
  }
  /// Polls for the next completion. Returns an empty one with kTimeout if the deadline passes.
  [[nodiscard]] Completion next(Deadline deadline = Deadline::after(std::chrono::seconds(10))) const {
    for (;;) {
      Completion completion;
      const Polled polled = channel->poll({&completion, 1});
      EXPECT_TRUE(polled) << polled.outcome().message();
      if (!polled.empty()) return completion;
      if (deadline.passed()) {
        completion.error = Errc::kTimeout;
        return completion;
      }
      std::this_thread::yield();
    }
  }
  /// Whether no completion is pending.
  [[nodiscard]] bool quiet() const {
    Completion completion;
    const Polled polled = channel->poll({&completion, 1});
    EXPECT_TRUE(polled);
    return polled.empty();
  }
};

/// Selects the device of an end.
struct DeviceChoice {
  std::string name = "soft0";
  const verbs::Api* api = nullptr;  ///< the table to open it from; nullptr: DeviceCore::open finds it

  [[nodiscard]] Result<std::shared_ptr<DeviceCore>> open() const {
    return api == nullptr ? DeviceCore::open({.name = name}) : DeviceCore::open_from(*api, {.name = name});
  }
};

/// Options of a pair.
struct PairOptions {
  AdapterConfig left{};
  AdapterConfig right{};
  bool with_event_channel = false;
  DeviceChoice left_device{};
  DeviceChoice right_device{};
};

/// Two ends, `left` and `right`. After make() they are in INIT; connect() connects them.
struct ConnectedPair {
  ChannelEnd left;
  ChannelEnd right;

  [[nodiscard]] Status connect() {
    const QpAddress left_address = left.channel->adapter().address();
    const QpAddress right_address = right.channel->adapter().address();
    if (Status status = left.channel->adapter().connect(right_address); !status.ok()) return status;
    return right.channel->adapter().connect(left_address);
  }

  [[nodiscard]] static Result<ChannelEnd> make_end(const DeviceChoice& choice, const std::string& name,
                                                   const AdapterConfig& config, bool with_event_channel) {
    ChannelEnd end;
    auto opened = choice.open();
    if (!opened) return std::move(opened).error();
    end.device = std::move(opened).value();
    const AdapterConfig fitted = config.fitted(end.device->limits());
    auto cq = NativeQueue::create(
        *end.device, {.depth = *fitted.send_depth + *fitted.recv_depth, .with_channel = with_event_channel});
    if (!cq) return std::move(cq).error();
    end.cq = std::move(cq).value();
    const auto gid = end.device->choose_gid();
    if (!gid) return gid.error();
    auto adapter = AdapterCore::create(*end.device, *end.cq, *end.cq, *gid, config);
    if (!adapter) return std::move(adapter).error();
    auto channel = ChannelCore::create(name, std::move(adapter).value());
    if (!channel) return std::move(channel).error();
    end.channel = std::move(channel).value();
    return end;
  }

  [[nodiscard]] static Result<ConnectedPair> make(const PairOptions& options = {}) {
    auto left_end = make_end(options.left_device, "left", options.left, options.with_event_channel);
    if (!left_end) return std::move(left_end).error();
    auto right_end = make_end(options.right_device, "right", options.right, options.with_event_channel);
    if (!right_end) return std::move(right_end).error();
    return ConnectedPair{std::move(left_end).value(), std::move(right_end).value()};
  }
};

/// A fixture with a connected pair. start() with other options replaces the pair.
class ConnectedPairTest : public ::testing::Test {
 protected:
  void SetUp() override { start(); }

  void start(const PairOptions& options = {}) {
    auto made = ConnectedPair::make(options);
    ASSERT_TRUE(made.has_value()) << made.error().message();
    const Status connected = pairs_.emplace_back(std::move(made).value()).connect();
    ASSERT_TRUE(connected.ok()) << connected.message();
  }
  [[nodiscard]] ChannelEnd& left() { return pairs_.back().left; }
  [[nodiscard]] ChannelEnd& right() { return pairs_.back().right; }

 private:
  // Earlier pairs are kept: a test body may still hold buffers of their devices.
  std::deque<ConnectedPair> pairs_;
};

}  // namespace rdmacomm::testing
