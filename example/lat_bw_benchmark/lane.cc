#include "lat_bw_benchmark/lane.h"

#include <chrono>
#include <thread>
#include <utility>

#include "lat_bw_benchmark/messages.h"

namespace rdmacomm::benchmark {

Lane::Lane(const Parts& parts)
    : endpoint_(parts.endpoint),
      delivery_(parts.delivery),
      channel_(*parts.endpoint.data()),
      direct_(parts.endpoint.config().channels.front().own_completion_queue),
      workspace_(parts.workspace),
      theirs_(parts.endpoint.remote_region(kWorkspace).value_or(RemoteRegion{})),
      plan_(parts.plan),
      clock_(parts.clock),
      side_(parts.side),
      yield_when_idle_(parts.yield_when_idle),
      guest_(parts.guest),
      still_(parts.still + programs::time_on_slow_network(parts.plan.sizes.back())) {}

std::error_code Lane::post(Op op, const Blocks& blocks, std::uint32_t block, std::uint64_t id,
                           PostFlags flags) noexcept {
  switch (op) {
    case Op::kSend: return channel_.post_send(blocks.out(block), id, flags);
    case Op::kWrite: return channel_.post_write(blocks.out(block), blocks.their_in(block), id, flags);
    case Op::kWriteImm:
      return channel_.post_write_imm(blocks.out(block), blocks.their_in(block), static_cast<std::uint32_t>(id), id,
                                     flags);
    case Op::kRead: return channel_.post_read(blocks.in(block), blocks.their_out(block), id, flags);
    case Op::kFetchAdd: return channel_.fetch_add(blocks.in(block), blocks.their_counter(), 1, id, flags);
    case Op::kCompareSwap:
      return channel_.compare_swap(blocks.in(block), blocks.their_counter(), id, id + 1, id, flags);
  }
  return make_error_code(Errc::kInvalidArgument);
}

Status Lane::poll(std::span<const Completion>& completions) {
  std::size_t count = std::exchange(held_, 0);
  if (count == 0) {
    const std::error_code failed =
        direct_ ? channel_.poll(completions_, count) : delivery_.poll(endpoint_, completions_, count);
    if (failed) return make_error(failed, "polling for completions of " + endpoint_.peer());
  }
  completions = std::span<const Completion>(completions_).first(count);
  if (count > 0) note_progress();
  for (const Completion& completion : completions) {
    if (!completion.ok()) return completion.explain();
    if (completion.operation != Operation::kRecv && completion.operation != Operation::kRecvWriteImm) {
      last_complete_ = completion.id;
    }
  }
  return {};
}

Status Lane::idle() {
  if (direct_) return spin();
  Status waited = delivery_.wait(endpoint_, completions_, held_, Deadline::after(still_));
  return waited.code() == Errc::kTimeout ? Status(no_progress()) : waited;
}

Status Lane::spin() {
  constexpr std::uint32_t kLookEvery = 1024;
  if (yield_when_idle_) std::this_thread::yield();
  if (++idle_calls_ % kLookEvery != 0) return {};
  if (!endpoint_.alive()) return endpoint_.status();
  if (std::exchange(seen_progress_, progress_) != progress_) still_until_ = Deadline::after(still_);
  return still_until_.passed() ? Status(no_progress()) : Status();
}

Error Lane::no_progress() const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(still_).count();
  return make_error(Errc::kTimeout, "nothing was received from " + endpoint_.peer() +
                                        " and no operation completed for " + std::to_string(seconds) +
                                        " s during a measurement");
}

Status Lane::wait_for(std::uint64_t id) {
  while (last_complete_ != id) {
    std::span<const Completion> completions;
    if (Status polled = poll(completions); !polled.ok()) return polled;
    if (!completions.empty()) continue;
    if (Status here = idle(); !here.ok()) return here;
  }
  return {};
}

Error Lane::refused(std::error_code code, const Cell& cell) const {
  return make_error(code, "cannot post " + cell.to_text() + " to " + endpoint_.peer());
}

}  // namespace rdmacomm::benchmark
