#include "lat_bw_benchmark/lane.h"

#include <chrono>
#include <thread>
#include <utility>

#include "lat_bw_benchmark/messages.h"

namespace rdmacomm::benchmark {
namespace {

/// If the plan needs a workspace, check_workspace() has checked it.
RemoteRegion workspace_of(const EndPoint& peer) {
  const auto region = peer.remote_region(kWorkspace);
  return region ? *region : RemoteRegion();
}

}  // namespace

Lane::Lane(const Parts& parts)
    : endpoint_(parts.endpoint),
      channel_(parts.endpoint.channel()),
      direct_(parts.endpoint.config().channels.front().own_completion_queue),
      workspace_(parts.workspace),
      theirs_(workspace_of(parts.endpoint)),
      plan_(parts.plan),
      clock_(parts.clock),
      side_(parts.side),
      yield_when_idle_(parts.yield_when_idle),
      guest_(parts.guest),
      still_(parts.still + programs::time_on_slow_network(parts.plan.sizes.back())) {}

Outcome Lane::post(Op op, const Blocks& blocks, std::uint32_t block, std::uint64_t id, PostFlags flags) noexcept {
  switch (op) {
    case Op::kSend: return channel_.post_send(blocks.out(block), {.id = id, .flags = flags});
    case Op::kWrite: return channel_.post_write(blocks.out(block), blocks.their_in(block), {.id = id, .flags = flags});
    case Op::kWriteImm:
      return channel_.post_write(blocks.out(block), blocks.their_in(block),
                                 {.id = id, .immediate = static_cast<std::uint32_t>(id), .flags = flags});
    case Op::kRead: return channel_.post_read(blocks.in(block), blocks.their_out(block), {.id = id, .flags = flags});
    case Op::kFetchAdd:
      return channel_.post_fetch_add(blocks.in(block), blocks.their_counter(), {.addend = 1},
                                     {.id = id, .flags = flags});
    case Op::kCompareSwap:
      return channel_.post_compare_swap(blocks.in(block), blocks.their_counter(), {.expected = id, .desired = id + 1},
                                        {.id = id, .flags = flags});
  }
  return Errc::kInvalidArgument;
}

Status Lane::poll(std::span<const Completion>& completions) {
  completions = std::span<const Completion>(completions_).first(std::exchange(held_, 0));
  if (completions.empty()) {
    const Polled polled = direct_ ? channel_.poll(completions_) : programs::poll_delivered(endpoint_, completions_);
    if (!polled) return make_error(polled.outcome().code(), "cannot poll for completions of " + endpoint_.peer());
    completions = {polled.begin(), polled.end()};
  }
  if (!completions.empty()) note_progress();
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
  const auto waited = programs::wait_delivered(endpoint_, completions_, Deadline::after(still_));
  if (waited) {
    held_ = waited->size();
    return {};
  }
  return waited.code() == Errc::kTimeout ? no_progress() : waited.error();
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

Error Lane::refused(Outcome post, const Cell& cell) const {
  return make_error(post.code(), "cannot post " + cell.to_text() + " to " + endpoint_.peer());
}

}  // namespace rdmacomm::benchmark
