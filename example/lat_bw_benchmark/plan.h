// plan.h - what a run measures: made from the client's flags, sent to the server, followed by both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "rdmacomm/result.h"

namespace rdmacomm::benchmark {

/// What a message between the two sides is. The numbers travel.
enum class MessageKind : std::uint16_t {
  kPlan = 1,
  kReply = 2,
  kOrder = 3,
  kReady = 4,
  kFinish = 5,
  kReport = 6,
  kDone = 7,
};

/// --tests. The numbers travel.
enum class TestKind : std::uint8_t {
  kLat = 0,   ///< one operation at a time, each one timed
  kBw = 1,    ///< as many as the queue depth at a time, one way
  kBiBw = 2,  ///< the same, both ways at once
  kRate = 3,  ///< small messages, as many a second as possible
};
/// --ops. The numbers travel.
enum class Op : std::uint8_t { kSend = 0, kWrite = 1, kWriteImm = 2, kRead = 3, kFetchAdd = 4, kCompareSwap = 5 };
/// --buffers. The numbers travel.
enum class BufferUse : std::uint8_t {
  kOne = 0,         ///< each message from and to the same place
  kRoundRobin = 1,  ///< from and to the next block each time
};
/// What a figure stands for.
enum class Metric : std::uint8_t {
  kHalfRoundTrip = 0,  ///< half of the time from posting until the peer's answer to it was seen: one way
  kCompletion = 1,     ///< from posting until the operation's own completion was polled
  kOneWay = 2,         ///< bytes a second from the client to the server (READ: from the server)
  kBothWays = 3,       ///< the sum of both directions
  kRate = 4,           ///< operations a second
};

[[nodiscard]] const char* to_text(TestKind test) noexcept;  ///< as in --tests
[[nodiscard]] const char* to_text(Op op) noexcept;          ///< as in --ops
[[nodiscard]] const char* to_text(Metric metric) noexcept;  ///< as in the table
[[nodiscard]] constexpr bool is_atomic(Op op) noexcept {
  return op == Op::kFetchAdd || op == Op::kCompareSwap;
}
/// Whether the target posts receives for it.
[[nodiscard]] constexpr bool needs_receives(Op op) noexcept {
  return op == Op::kSend || op == Op::kWriteImm;
}

/// Lists as in the flags: names with commas between them, or "all". kInvalidArgument: the context names what is none.
[[nodiscard]] Result<std::vector<TestKind>> parse_tests(std::string_view text);
[[nodiscard]] Result<std::vector<Op>> parse_ops(std::string_view text);
[[nodiscard]] Result<BufferUse> parse_buffers(std::string_view text);

/// One line of the result: an operation of one size, measured in one way. A value.
struct Cell {
  Metric metric = Metric::kCompletion;
  Op op = Op::kWrite;
  std::uint64_t bytes = 0;

  [[nodiscard]] bool is_latency() const noexcept {
    return metric == Metric::kHalfRoundTrip || metric == Metric::kCompletion;
  }
  [[nodiscard]] bool operator==(const Cell&) const = default;
  [[nodiscard]] std::string to_text() const;  ///< "write 64K half-rt"
};

/// A run. A value; what a server gets of a client is valid or refused.
struct Plan {
  static constexpr MessageKind kKind = MessageKind::kPlan;
  static constexpr std::uint32_t kMaxIterations = 10'000'000;
  static constexpr std::uint32_t kMaxLatencies = 1'000'000;  ///< kept of one cell: exact percentiles need all of them
  static constexpr std::uint32_t kMaxRounds = 100;
  static constexpr std::uint32_t kMaxQueueDepth = 1024;
  static constexpr std::uint32_t kMaxInlineBytes = 256;
  static constexpr std::uint64_t kMaxMessageBytes = std::uint64_t{1} << 31;
  static constexpr std::uint64_t kMaxDurationUs = 600'000'000;
  static constexpr std::uint64_t kMaxAreaBytes = std::uint64_t{4} << 30;

  std::vector<Op> ops = {};
  std::vector<TestKind> tests = {};
  std::vector<std::uint64_t> sizes = {};  ///< ascending; 1..kMaxMessageBytes each
  std::uint32_t iterations = 0;           ///< of each cell, all rounds together, 1..kMaxIterations, with
                                          ///< latencies 1..kMaxLatencies; 0: duration_us decides
  std::uint64_t duration_us = 0;   ///< of each cell, all rounds together, 1..kMaxDurationUs; 0: iterations decides
  std::uint32_t rounds = 5;        ///< 1..kMaxRounds: parts of a cell, with the machine measured in between
  std::uint32_t queue_depth = 64;  ///< 1..kMaxQueueDepth: operations outstanding in bw, bibw and rate
  std::uint32_t inline_bytes = 0;  ///< 0..kMaxInlineBytes: payloads up to this are posted inline
  BufferUse buffers = BufferUse::kOne;
  bool verify = false;
  bool corrupt = false;          ///< spoils one byte of what is sent: shows that verify finds it
  std::string machine_id = {};   ///< of the client: two processes on one machine take different CPUs
  std::int32_t client_cpu = -1;  ///< where the client measures; -1: anywhere

  /// kInvalidArgument: outside of a range given above, nothing to measure, or buffers beyond kMaxAreaBytes. The context
  /// names value and range.
  [[nodiscard]] Status validate() const;
  /// Everything there is to measure, in order. Atomics are 8 bytes; rate is measured at one size, rate_bytes().
  [[nodiscard]] std::vector<Cell> cells() const;
  /// 8 where it is among the sizes, else the smallest size.
  [[nodiscard]] std::uint64_t rate_bytes() const;

  /// How many blocks of `bytes` a cell uses in turn, and how far apart they lie.
  [[nodiscard]] std::uint64_t blocks(std::uint64_t bytes) const noexcept;
  [[nodiscard]] static std::uint64_t stride(std::uint64_t bytes) noexcept;
  /// The memory that messages leave from, and as much again that they go to: enough for each cell.
  [[nodiscard]] std::uint64_t area_bytes() const;

  /// Appends the wire form.
  void encode(WireWriter& writer) const;
  /// Takes it off `reader`. kBadMessage: truncated, or not valid(); the context says what.
  [[nodiscard]] static Result<Plan> decode(WireReader& reader);
};

}  // namespace rdmacomm::benchmark
