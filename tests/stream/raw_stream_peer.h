// raw_stream_peer.h - the remote end of a stream, controlled by hand: it sends any data that a test passes, valid or
// not. For one thread.
#pragma once

#include <gtest/gtest.h>

#include <future>
#include <memory>
#include <vector>

#include "base/wire.h"
#include "stream/segment.h"
#include "stream/stream_pair.h"

namespace rdmacomm::testing {

class RawStreamPeer {
 public:
  static constexpr std::size_t kSlotBytes = 8192;
  static constexpr std::uint64_t kSlots = 24;

  /// Posts receives, and waits for the stream's open() at the barrier.
  RawStreamPeer(std::shared_ptr<EndPointCore> endpoint, std::string name)
      : endpoint_(std::move(endpoint)), channel_(*endpoint_->channel(name)) {
    memory_ = RDMABuffer::allocate(endpoint_->device(), {.block_bytes = kSlotBytes,
                                                         .block_count = kSlots + 1,
                                                         .remote_access = RemoteAccess::kRead | RemoteAccess::kWrite})
                  .value();
    for (std::uint64_t i = 0; i < kReceives; ++i) EXPECT_TRUE(channel_.post_recv(memory_.at(i), {.id = i}));
    const Status met = endpoint_->sync_with_peer("rdmacomm.stream." + name, soon());
    EXPECT_TRUE(met.ok()) << met.message();
  }
  RawStreamPeer(const RawStreamPeer&) = delete;
  RawStreamPeer& operator=(const RawStreamPeer&) = delete;
  ~RawStreamPeer() { EXPECT_TRUE(channel_.drain(soon()).ok()); }

  /// Sends any bytes as a segment. Returns the request's completion.
  Completion send(std::span<const std::byte> bytes) {
    EXPECT_TRUE(channel_.post_send(filled(bytes), {.id = kSent}));
    return sent();
  }
  /// Sends with any immediate data.
  Completion send_imm(std::uint32_t immediate, std::span<const std::byte> bytes) {
    EXPECT_TRUE(channel_.post_send(filled(bytes), {.id = kSent, .immediate = immediate}));
    return sent();
  }
  Completion send_data(std::span<const std::byte> bytes, std::uint32_t credit = 0) {
    return send_imm(immediate_of(SegmentKind::kData, credit), bytes);
  }

  Completion send(SegmentHeader header, std::span<const std::byte> payload = {}) {
    header.length = static_cast<std::uint32_t>(payload.size());
    return send_as(header, payload);
  }
  Completion send_as(const SegmentHeader& header, std::span<const std::byte> payload) {
    std::vector<std::byte> all(SegmentHeader::kBytes);
    header.encode(std::span(all).first<SegmentHeader::kBytes>());
    all.insert(all.end(), payload.begin(), payload.end());
    return send(all);
  }
  void say_hello(StreamHello hello = {.immediate = true, .block_bytes = 4096, .read_blocks = 4}) {
    EXPECT_TRUE(send({.kind = SegmentKind::kHello}, hello.encode()).ok());
  }

  struct Heard {
    SegmentHeader header{};
    std::span<const std::byte> payload{};
  };
  /// Returns the next segment that has arrived.
  Heard hear() {
    while (heard_.empty()) {
      const Completion next = take();
      EXPECT_TRUE(next.ok()) << next.status().message();
      if (!next.ok()) return {};
      if (next.operation == Operation::kRecv) heard_.push_back(next);
    }
    const Completion oldest = heard_.front();
    heard_.erase(heard_.begin());
    const auto bytes = memory_.at(oldest.id).bytes().first(oldest.bytes);
    if (oldest.has_immediate) return {header_of(oldest.immediate, oldest.bytes).value(), bytes};
    const auto header = SegmentHeader::decode(bytes.first<SegmentHeader::kBytes>(), bytes.size());
    EXPECT_TRUE(header.has_value()) << header.status().message();
    return {header.value(), bytes.subspan(SegmentHeader::kBytes)};
  }
  /// Reads until the abort. Returns its reason.
  std::string hear_abort() {
    for (;;) {
      const Heard heard = hear();
      if (::testing::Test::HasFailure()) return {};
      if (heard.header.kind != SegmentKind::kAbort) continue;
      WireReader reader(heard.payload);
      return reader.get_text();
    }
  }
  [[nodiscard]] EndPointCore& endpoint() { return *endpoint_; }
  [[nodiscard]] RDMAChannel& channel() { return channel_; }
  [[nodiscard]] RDMABuffer& memory() { return memory_; }

 private:
  static constexpr std::uint64_t kReceives = 12;
  static constexpr std::uint64_t kSent = 1000;

  BufferSlice filled(std::span<const std::byte> bytes) {
    const BufferSlice slot = memory_.at(kSlots).first(static_cast<std::uint32_t>(bytes.size()));
    std::ranges::copy(bytes, slot.data());
    return slot;
  }
  /// The completion of the request that was posted last.
  Completion sent() {
    for (;;) {
      const Completion next = take();
      if (next.operation == Operation::kSend) return next;
      if (next.ok()) heard_.push_back(next);
      if (next.error == Errc::kTimeout) return next;
    }
  }
  Completion take() {
    const auto completion = endpoint_->next(channel_, soon());
    EXPECT_TRUE(completion) << completion.status().message();
    return completion ? *completion : Completion{.error = Errc::kTimeout};
  }

  const std::shared_ptr<EndPointCore> endpoint_;
  ChannelCore& channel_;
  RDMABuffer memory_;
  std::vector<Completion> heard_;
};

}  // namespace rdmacomm::testing
