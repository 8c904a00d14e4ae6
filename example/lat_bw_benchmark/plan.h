// plan.h - the measurements of a run: made from the client's flags, sent to the server, and followed by both.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/wire.h"
#include "rdmacomm/result.h"

namespace rdmacomm::benchmark {

/// The type of a message between the two peers. The numbers are sent on the wire.
enum class MessageKind : std::uint16_t {
  kPlan = 1,
  kReply = 2,
  kOrder = 3,
  kReady = 4,
  kFinish = 5,
  kReport = 6,
  kDone = 7,
};

/// --tests. The numbers are sent on the wire.
enum class TestKind : std::uint8_t {
  kLat = 0,   ///< one operation at a time, each timed
  kBw = 1,    ///< up to the queue depth at a time, one way
  kBiBw = 2,  ///< the same, both ways at once
  kRate = 3,  ///< small messages, at the highest possible rate
};
/// --ops. The numbers are sent on the wire.
enum class Op : std::uint8_t { kSend = 0, kWrite = 1, kWriteImm = 2, kRead = 3, kFetchAdd = 4, kCompareSwap = 5 };
/// --buffers. The numbers are sent on the wire.
enum class BufferUse : std::uint8_t {
  kOne = 0,         ///< all messages use the same block
  kRoundRobin = 1,  ///< each message uses the next block
};
/// The quantity that is measured.
enum class Metric : std::uint8_t {
  kHalfRoundTrip = 0,  ///< half of the time from posting to the peer's answer: one way
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
/// Whether the target must post receives for it.
[[nodiscard]] constexpr bool needs_receives(Op op) noexcept {
  return op == Op::kSend || op == Op::kWriteImm;
}

/// Lists as in the flags: names with commas, or "all". kInvalidArgument: the context has the wrong name.
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

/// A run. A value. A server checks a client's plan, and refuses it if it is invalid.
struct Plan {
  static constexpr MessageKind kKind = MessageKind::kPlan;
  static constexpr std::uint32_t kMaxIterations = 10'000'000;
  static constexpr std::uint32_t kMaxLatencies = 1'000'000;  ///< kept for one cell: exact percentiles need all of them
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
  std::uint32_t rounds = 5;        ///< 1..kMaxRounds: parts of a cell; the machine is measured in between
  std::uint32_t queue_depth = 64;  ///< 1..kMaxQueueDepth: operations outstanding in bw, bibw and rate
  std::uint32_t inline_bytes = 0;  ///< 0..kMaxInlineBytes: payloads up to this size are posted inline
  BufferUse buffers = BufferUse::kOne;
  bool verify = false;
  bool corrupt = false;          ///< changes one byte of each sent message, to show that verify finds it
  std::string machine_id = {};   ///< of the client: if both run on one machine, they use different CPUs
  std::int32_t client_cpu = -1;  ///< the CPU that the client measures on; -1: any

  /// kInvalidArgument: a value outside its range above, nothing to measure, or buffers larger than kMaxAreaBytes. The
  /// context has value and range.
  [[nodiscard]] Status validate() const;
  /// All cells to measure, in order. Atomics have 8 bytes; the rate is measured at one size, rate_bytes().
  [[nodiscard]] std::vector<Cell> cells() const;
  /// 8 if it is among the sizes, else the smallest size.
  [[nodiscard]] std::uint64_t rate_bytes() const;

  /// The number of blocks of `bytes` that a cell uses in turn, and the distance between them.
  [[nodiscard]] std::uint64_t blocks(std::uint64_t bytes) const noexcept;
  [[nodiscard]] static std::uint64_t stride(std::uint64_t bytes) noexcept;
  /// The memory for sent messages, which is also that for received ones: enough for each cell.
  [[nodiscard]] std::uint64_t area_bytes() const;

  /// Appends the wire form.
  void encode(WireWriter& writer) const;
  /// Reads the wire form from `reader`. kBadMessage: truncated, or validate() fails; the context has the reason.
  [[nodiscard]] static Result<Plan> decode(WireReader& reader);
};

}  // namespace rdmacomm::benchmark
