// part.h - a part of a cell: a number of iterations of one operation, on both peers at once.
#pragma once

#include <cstdint>
#include <memory>

#include "lat_bw_benchmark/lane.h"
#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/verification.h"
#include "support/statistics.h"

namespace rdmacomm::benchmark {

/// The local half of a part. Both peers call prepare() before either calls run(), and finish() after both have run.
/// Threads: one at a time.
class Part {
 public:
  Part(Lane& lane, const Cell& cell, const Order& order);
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  /// Fills the send blocks, clears the receive blocks, and posts receives.
  [[nodiscard]] Status prepare();
  /// Runs the local operations. Returns when all of them are complete and all expected messages have arrived. If the
  /// data is verified, its WRITEs are then also in the peer's memory.
  [[nodiscard]] Status run();
  /// Checks the results that are final only after the run: WRITEs, and the counter of the atomics.
  void finish();

  /// The time of the local operations; 0 if there were none.
  [[nodiscard]] std::uint64_t elapsed_ticks() const noexcept { return elapsed_ticks_; }
  [[nodiscard]] const Verifier& verifier() const noexcept { return verifier_; }

 protected:
  /// The operations, with the measurement.
  [[nodiscard]] virtual Status operate() = 0;
  /// The number of local operations, and of receives that they need.
  [[nodiscard]] virtual std::uint64_t sends() const = 0;
  [[nodiscard]] virtual std::uint64_t receives() const = 0;

  /// Payloads depend on their sender and the order, so that no message of an earlier part passes for one of this part.
  [[nodiscard]] std::uint64_t seed_of(Lane::Side sender) const noexcept {
    return (std::uint64_t{order_.sequence} << 33) + (static_cast<std::uint64_t>(sender) << 32);
  }
  [[nodiscard]] std::uint64_t my_seed() const noexcept { return seed_of(lane_.side()); }
  [[nodiscard]] std::uint64_t their_seed() const noexcept {
    return seed_of(lane_.side() == Lane::Side::kClient ? Lane::Side::kServer : Lane::Side::kClient);
  }
  /// Posts the next receive, if more are needed.
  [[nodiscard]] Status post_next_receive();
  /// Fills block `block` for iteration `iteration`, if payloads are verified.
  void fill_out(std::uint32_t block, std::uint64_t seed);

  Lane& lane_;
  const Cell cell_;
  const Order order_;
  const Blocks blocks_;
  const PostFlags flags_;
  Verifier verifier_;
  std::uint64_t elapsed_ticks_ = 0;
  std::uint64_t receives_posted_ = 0;
  std::uint32_t next_receive_block_ = 0;

 private:
  /// Returns when the WRITEs are in the peer's memory. Their completion promises that on InfiniBand only. On iWARP it
  /// only means that the local memory may be reused (RFC 5040, 5.5). The answer to a READ comes after all earlier
  /// WRITEs.
  [[nodiscard]] Status settle();
};

/// Creates the local half of a part. If the cell measures latencies and this is the client, `samples` gets them, in
/// ticks.
[[nodiscard]] std::unique_ptr<Part> make_part(Lane& lane, const Cell& cell, const Order& order,
                                              programs::Samples* samples);
/// The two kinds of parts: see latency_part.cc and stream_part.cc.
[[nodiscard]] std::unique_ptr<Part> make_latency_part(Lane& lane, const Cell& cell, const Order& order,
                                                      programs::Samples* samples);
[[nodiscard]] std::unique_ptr<Part> make_stream_part(Lane& lane, const Cell& cell, const Order& order);

}  // namespace rdmacomm::benchmark
