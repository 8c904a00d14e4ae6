// Streams of bytes and of messages on every device, between two sessions. A SEND without a posted receive would fail at
// once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <future>
#include <optional>

#include "contract/contract_test.h"
#include "rdmacomm/message_stream.h"
#include "rdmacomm/session.h"

namespace rdmacomm::contract {
namespace {

using ::testing::HasSubstr;

constexpr StreamOptions kOptions{.block_bytes = 4096, .write_blocks = 4, .read_blocks = 4, .borrowed_blocks = 2};
constexpr std::size_t kLargest = 32768;  // largest block of the pools
constexpr const char* kBytes = "bytes";
constexpr const char* kMessages = "messages";

Status add_channels(HcaConfig& hca, const PeerInfo& /*peer*/) {
  hca.polling_mode = PollingMode::kAdaptive;
  hca.channels = {kOptions.channel(kBytes), MessageStream::channel(kOptions, kMessages)};
  for (ChannelConfig& each : hca.channels) each.adapter.rnr_retry = 0;
  return {};
}

std::vector<std::byte> pattern(std::size_t bytes) {
  std::vector<std::byte> data(bytes);
  for (std::size_t i = 0; i < bytes; ++i) data[i] = static_cast<std::byte>(i * 31 + i / 251);
  return data;
}

SessionOptions options(const TestDevice& device, const std::string& host, std::uint16_t port) {
  return {.device = {.name = device.name}, .address = {host, port}};
}

class StreamsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    const std::string ip = TestDevice::peers().address.empty() ? "127.0.0.1" : TestDevice::peers().address;
    server_.emplace(options(TestDevice::peers(), ip, 0), SessionFunctions{.lazy_config_hca = add_channels});
    const Status started = server_->start();
    ASSERT_TRUE(started.ok()) << started.message();
    client_.emplace(options(TestDevice::own(), ip, server_->port()), SessionFunctions{.lazy_config_hca = add_channels});
    auto near = client_->connect();
    ASSERT_TRUE(near.has_value()) << near.status().message();
    near_ = std::move(*near);
    auto far = server_->accept(patience());
    ASSERT_TRUE(far.has_value()) << far.status().message();
    far_ = std::move(*far);
  }
  static Result<RDMAStream> bytes(const EndPoint& endpoint) {
    return RDMAStream::open(endpoint, endpoint.channel(kBytes), kOptions, patience());
  }
  static Result<MessageStream> messages(const EndPoint& endpoint) {
    // iWARP needs remote write access to the destination of a READ.
    const RemoteAccess access = RemoteAccess::kRead | RemoteAccess::kWrite;
    auto pool = BufferPool::create(endpoint.device(),
                                   {.total_bytes = 8 * kLargest, .largest_block = kLargest, .remote_access = access});
    if (!pool) return pool.error();
    return MessageStream::open(endpoint, endpoint.channel(kMessages), *pool, kOptions, patience());
  }
  template <typename Open>
  auto open_both(Open open) {
    auto other = std::async(std::launch::async, [&] { return open(far_); });
    auto one = open(near_);
    EXPECT_TRUE(one.has_value()) << one.status().message();
    auto opened = other.get();
    EXPECT_TRUE(opened.has_value()) << opened.status().message();
    using Stream = std::remove_cvref_t<decltype(*one)>;
    return std::pair(one ? std::move(*one) : Stream(), opened ? std::move(*opened) : Stream());
  }

  std::optional<ServerSession> server_;
  std::optional<ClientSession> client_;
  EndPoint near_;
  EndPoint far_;
};

void expect_bytes(RDMAStream& from, RDMAStream& to, std::size_t bytes) {
  auto written = std::async(std::launch::async, [&] {
    const Status status = from.write(pattern(bytes), patience());
    return status ? from.finish(patience()) : status;
  });
  std::vector<std::byte> all;
  std::vector<std::byte> some(10'000);
  for (std::size_t count = 1; count > 0;) {
    const auto got = to.read(some, patience());
    ASSERT_TRUE(got.has_value()) << got.status().message();
    count = *got;
    all.insert(all.end(), some.begin(), some.begin() + static_cast<std::ptrdiff_t>(count));
  }
  EXPECT_TRUE(all == pattern(bytes));
  const Status finished = written.get();
  EXPECT_TRUE(finished.ok()) << finished.message();
}

TEST_F(StreamsTest, BytesArriveBothWaysAndEnd) {
  auto [near, far] = open_both(bytes);
  ASSERT_TRUE(near && far);
  expect_bytes(near, far, 300'001);
  expect_bytes(far, near, 300'001);
}

TEST_F(StreamsTest, AReaderOfTheEndMayCloseAtOnce) {
  auto [near, far] = open_both(bytes);
  ASSERT_TRUE(near && far);
  auto finished = std::async(std::launch::async, [&stream = near] { return stream.finish(patience()); });
  const auto end = far.next(patience());
  ASSERT_TRUE(end.has_value()) << end.status().message();
  EXPECT_FALSE(*end);
  far = {};
  EXPECT_TRUE(far_.close().ok());
  const Status status = finished.get();
  EXPECT_TRUE(status.ok()) << status.message();
}

TEST_F(StreamsTest, AnAbortArrivesWithItsReason) {
  auto [near, far] = open_both(bytes);
  ASSERT_TRUE(near && far);
  near.abort("the disk is full");
  near = {};
  const auto read = far.next(patience());
  EXPECT_EQ(read.code(), Errc::kAborted);
  EXPECT_THAT(read.status().message(), HasSubstr("the disk is full"));
}

TEST_F(StreamsTest, MessagesArriveAsTheyWereSent) {
  auto [near, far] = open_both(messages);
  ASSERT_TRUE(near && far);
  const std::vector<std::size_t> sizes = {0, 1, 4096, 4097, kLargest, 3 * kLargest + 5, 0, 20};
  auto sent = std::async(std::launch::async, [&stream = near, &sizes] {
    for (const std::size_t size : sizes) {
      if (Status status = stream.send(pattern(size), patience()); !status) return status;
    }
    return stream.finish(patience());
  });
  std::vector<std::byte> message;
  for (std::size_t i = 0; i < sizes.size();) {
    const auto part = far.receive(patience());
    ASSERT_TRUE(part.has_value()) << part.status().message();
    ASSERT_TRUE(*part);
    message.insert(message.end(), part->bytes().begin(), part->bytes().end());
    if (!part->last()) continue;
    EXPECT_TRUE(message == pattern(sizes[i])) << sizes[i];
    message.clear();
    ++i;
  }
  EXPECT_FALSE(far.receive(patience()).value());
  const Status status = sent.get();
  EXPECT_TRUE(status.ok()) << status.message();
}

}  // namespace
}  // namespace rdmacomm::contract
