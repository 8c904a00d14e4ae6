// part.h - a part of a cell: so many iterations of one operation, on both sides at once.
#pragma once

#include <cstdint>
#include <memory>

#include "lat_bw_benchmark/lane.h"
#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/verification.h"
#include "support/statistics.h"

namespace rdmacomm::benchmark {

/// One side's half of a part. prepare() on both sides comes before run() on either; finish() after both.
/// Threads: one.
class Part {
 public:
  Part(Lane& lane, const Cell& cell, const Order& order);
  Part(const Part&) = delete;
  Part& operator=(const Part&) = delete;
  virtual ~Part() = default;

  /// Fills what will be sent, clears what will be received into, and posts receives.
  [[nodiscard]] Status prepare();
  /// Does this side's share, until all its operations are complete, all that it is to receive has come, and what it
  /// wrote is in the peer's memory, where that is looked at.
  [[nodiscard]] Status run();
  /// Looks at what only lies in memory when all is over: WRITEs, and the counter of the atomics.
  void finish();

  /// The time of this side's own operations; 0 where it had none.
  [[nodiscard]] std::uint64_t elapsed_ticks() const noexcept { return elapsed_ticks_; }
  [[nodiscard]] const Verifier& verifier() const noexcept { return verifier_; }

 protected:
  /// The operations, and what is measured.
  [[nodiscard]] virtual Status operate() = 0;
  /// How many operations this side posts, and how many receives it needs.
  [[nodiscard]] virtual std::uint64_t sends() const = 0;
  [[nodiscard]] virtual std::uint64_t receives() const = 0;

  /// Payloads carry their sender and the order, so that none of an earlier part can pass for one of this.
  [[nodiscard]] std::uint64_t seed_of(Lane::Side sender) const noexcept {
    return (std::uint64_t{order_.sequence} << 33) + (static_cast<std::uint64_t>(sender) << 32);
  }
  [[nodiscard]] std::uint64_t my_seed() const noexcept { return seed_of(lane_.side()); }
  [[nodiscard]] std::uint64_t their_seed() const noexcept {
    return seed_of(lane_.side() == Lane::Side::kClient ? Lane::Side::kServer : Lane::Side::kClient);
  }
  /// Posts the next receive unless all that are needed are posted.
  [[nodiscard]] Status post_next_receive();
  /// Fills block `block` for iteration `iteration` where payloads are verified.
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
  /// Returns when the WRITEs are in the peer's memory. Their completion promises that on InfiniBand only; on iWARP it
  /// says that this side's memory is free again (RFC 5040, 5.5). A READ is answered after the WRITEs before it.
  [[nodiscard]] Status settle();
};

/// The half of `side` of a part. `samples` gets the latencies in ticks, where the cell has some and the side is the
/// client.
[[nodiscard]] std::unique_ptr<Part> make_part(Lane& lane, const Cell& cell, const Order& order,
                                              programs::Samples* samples);
/// The two kinds of parts: latency_part.cc, stream_part.cc.
[[nodiscard]] std::unique_ptr<Part> make_latency_part(Lane& lane, const Cell& cell, const Order& order,
                                                      programs::Samples* samples);
[[nodiscard]] std::unique_ptr<Part> make_stream_part(Lane& lane, const Cell& cell, const Order& order);

}  // namespace rdmacomm::benchmark
