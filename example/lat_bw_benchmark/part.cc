#include "lat_bw_benchmark/part.h"

#include <algorithm>

#include "support/pattern.h"

namespace rdmacomm::benchmark {

Part::Part(Lane& lane, const Cell& cell, const Order& order)
    : lane_(lane),
      cell_(cell),
      order_(order),
      blocks_(lane.blocks(cell)),
      flags_(lane.payload_flags(cell)),
      verifier_(lane.plan().verify) {}

void Part::fill_out(std::uint32_t block, std::uint64_t seed) {
  if (!verifier_.on()) return;
  const auto bytes = blocks_.out(block).bytes();
  programs::fill_pattern(bytes, seed);
  if (lane_.plan().corrupt) corrupt_one_byte(bytes);
}

Status Part::prepare() {
  lane_.begin_part();
  *blocks_.counter() = 0;
  for (std::uint32_t block = 0; block < blocks_.count(); ++block) {
    fill_out(block, my_seed());
    // A receiver that polls for the last byte starts from 0, which is never sent.
    blocks_.in(block).bytes().back() = std::byte{0};
    if (verifier_.on()) std::ranges::fill(blocks_.in(block).bytes(), std::byte{0});
  }
  const auto depth = static_cast<std::uint64_t>(lane_.channel().recv_depth());
  for (std::uint64_t i = 0, first = std::min(depth, receives()); i < first; ++i) {
    if (Status posted = post_next_receive(); !posted.ok()) return posted;
  }
  return {};
}

Status Part::post_next_receive() {
  if (receives_posted_ == receives()) return {};
  if (const Outcome posted = lane_.post_receive(cell_.op, blocks_, next_receive_block_); !posted) {
    return make_error(posted.code(), "cannot post a receive for " + cell_.to_text());
  }
  ++receives_posted_;
  next_receive_block_ = blocks_.next(next_receive_block_);
  return {};
}

Status Part::run() {
  if (Status done = operate(); !done.ok()) return done;
  return settle();
}

Status Part::settle() {
  constexpr std::uint64_t kReadBack = UINT64_MAX - 1;
  const bool wrote = cell_.op == Op::kWrite && cell_.metric != Metric::kHalfRoundTrip && sends() != 0;
  if (!wrote || !verifier_.on()) return {};
  const Outcome posted = lane_.channel().post_read(blocks_.counter_slice(), blocks_.their_counter(), {.id = kReadBack});
  if (!posted) return lane_.refused(posted, cell_);
  return lane_.wait_for(kReadBack);
}

void Part::finish() {
  // In a half round trip, each message is checked when it arrives.
  const bool target = lane_.side() == Lane::Side::kServer || cell_.metric == Metric::kBothWays;
  if (!target || cell_.metric == Metric::kHalfRoundTrip) return;
  if (is_atomic(cell_.op)) verifier_.check_number(*blocks_.counter(), order_.iterations, "the counter");
  if (cell_.op != Op::kWrite) return;
  const auto used = static_cast<std::uint32_t>(std::min<std::uint64_t>(blocks_.count(), order_.iterations));
  for (std::uint32_t block = 0; block < used; ++block) {
    verifier_.check(blocks_.in(block).bytes(), their_seed(), "memory written by WRITE");
  }
}

std::unique_ptr<Part> make_part(Lane& lane, const Cell& cell, const Order& order, programs::Samples* samples) {
  if (cell.is_latency()) return make_latency_part(lane, cell, order, samples);
  return make_stream_part(lane, cell, order);
}

}  // namespace rdmacomm::benchmark
