#include "channel/receive_pool_core.h"

#include <algorithm>
#include <array>

#include "base/check_range.h"
#include "base/logging.h"
#include "channel/channel_core.h"
#include "channel/operations.h"
#include "channel/request_id.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kBatch = 16;  // receives posted with one doorbell

}  // namespace

Status ReceivePoolOptions::validate(const DeviceLimits& limits) const {
  if (Status status = SharedReceiveQueueOptions{.depth = depth}.validate(limits); !status) return status;
  if (message_bytes == 0) {
    return make_error(Errc::kInvalidArgument, "message_bytes of a receive pool is 0; it must be at least 1");
  }
  return check_range("low_water of a receive pool", low_water, {.low = 0, .high = depth - 1});
}

Result<std::shared_ptr<ReceivePoolCore>> ReceivePoolCore::create(std::shared_ptr<DeviceCore> device,
                                                                 const ReceivePoolOptions& options) {
  if (Status status = options.validate(device->limits()); !status) {
    return make_error(status.code(), device->to_text() + ": " + status.error().context);
  }
  auto queue = SharedReceiveQueue::create(*device, {.depth = options.depth});
  if (!queue) return queue.error();
  auto memory = RDMABuffer::allocate(device, {.name = "receive pool",
                                              .block_bytes = options.message_bytes,
                                              .block_count = static_cast<std::size_t>(options.depth)});
  if (!memory) return memory.error();
  std::shared_ptr<ReceivePoolCore> pool(
      new ReceivePoolCore(std::move(device), options, std::move(*memory), std::move(*queue)));
  if (Status posted = pool->post_all(); !posted) return posted.error();
  return pool;
}

ReceivePoolCore::ReceivePoolCore(std::shared_ptr<DeviceCore> device, const ReceivePoolOptions& options,
                                 RDMABuffer memory, std::unique_ptr<SharedReceiveQueue> queue)
    : device_(std::move(device)),
      options_(options),
      memory_(std::move(memory)),
      receives_(std::make_unique<Receive[]>(static_cast<std::size_t>(options.depth))),
      queue_(std::move(queue)) {}

Status ReceivePoolCore::post_all() {
  const auto depth = static_cast<std::uint32_t>(options_.depth);
  for (std::uint32_t index = 0; index < depth; ++index) {
    receives_[index].pool = this;
    receives_[index].index = index;
    Receive* one = &receives_[index];
    if (const Outcome posted = post({&one, 1}); !posted) {
      return make_error(posted.code(), "cannot post receive " + std::to_string(index) + " of " + std::to_string(depth) +
                                           " to a shared receive queue of " + device_->to_text());
    }
  }
  return options_.low_water > 0 ? queue_->arm_limit(options_.low_water) : Status();
}

Outcome ReceivePoolCore::post(std::span<Receive*> receives) noexcept {
  std::array<ibv_recv_wr, kBatch> wrs;  // only the first receives.size() are filled
  std::array<ibv_sge, kBatch> slices;
  for (std::size_t i = 0; i < receives.size(); ++i) {
    const BufferSlice block = memory_.at(receives[i]->index);
    slices[i] = {block.address, block.length, block.lkey};
    wrs[i].wr_id = pooled_request_id(receives[i]);
    wrs[i].next = i + 1 < receives.size() ? &wrs[i + 1] : nullptr;
    wrs[i].sg_list = &slices[i];
    wrs[i].num_sge = 1;
    // Set first, because the completion may be polled before the call returns.
    receives[i]->state.store(State::kPosted, std::memory_order_release);
  }
  posted_.fetch_add(static_cast<int>(receives.size()), std::memory_order_relaxed);
  ibv_recv_wr* bad = wrs.data();  // some drivers do not set it on errors: then no receive was taken
  const int refused = ibv_post_srq_recv(queue_->get(), wrs.data(), &bad);
  if (refused == 0) [[likely]] {
    if (disarmed_.load(std::memory_order_relaxed)) arm_again();
    return {};
  }
  posted_.fetch_sub(static_cast<int>(receives.size() - static_cast<std::size_t>(bad - wrs.data())),
                    std::memory_order_relaxed);
  return Outcome::of_system(verbs::error_number(refused));
}

ReceivePoolCore::Receive& ReceivePoolCore::take(std::uint64_t wr_id) noexcept {
  Receive& receive = *pooled_request<Receive>(wr_id);
  // The posting thread wrote the receive. Only the device connects the two threads, so the acquire is needed.
  (void)receive.state.load(std::memory_order_acquire);
  receive.state.store(State::kDelivered, std::memory_order_relaxed);
  ReceivePoolCore& pool = *receive.pool;
  const int left = pool.posted_.fetch_sub(1, std::memory_order_relaxed) - 1;
  if (pool.disarmed_.load(std::memory_order_relaxed)) [[unlikely]] {
    // The report may be late: the application may have given all receives back by then, and keep the next ones.
    pool.arm_again();
  } else if (left < pool.options_.low_water) [[unlikely]] {
    // A device may report nothing if it was armed after messages had taken receives that were not polled yet.
    pool.note_low();
  }
  return receive;
}

std::span<std::byte> ReceivePoolCore::message(const Completion& completion) const noexcept {
  if (!completion.ok() || completion.operation != Operation::kRecv) return {};
  return memory_.at(completion.id).bytes().first(completion.bytes);
}

void ReceivePoolCore::keep(const Completion& completion) noexcept {
  receives_[completion.id].state.store(State::kKept, std::memory_order_relaxed);
}

Outcome ReceivePoolCore::give_back(const Completion& completion) noexcept {
  Receive* receive = &receives_[completion.id];
  for (State held : {State::kDelivered, State::kKept}) {
    // If two threads give it back, only one succeeds.
    if (receive->state.compare_exchange_strong(held, State::kHeld, std::memory_order_relaxed)) {
      return post({&receive, 1});
    }
  }
  return Errc::kWrongState;
}

Outcome ReceivePoolCore::give_back_unkept(std::span<const Completion> completions) noexcept {
  std::array<Receive*, kBatch> batch;
  std::size_t count = 0;
  Outcome all;
  const auto flush = [&]() noexcept {
    if (count == 0) return;
    const Outcome now = batch[0]->pool->post(std::span(batch).first(count));
    if (all) all = now;
    count = 0;
  };
  for (const Completion& completion : completions) {
    ReceivePoolCore* pool = completion.channel->receive_pool().core().get();
    if (pool == nullptr || !is_receive(completion.operation)) continue;
    Receive& receive = pool->receives_[completion.id];
    State delivered = State::kDelivered;
    if (!receive.state.compare_exchange_strong(delivered, State::kHeld, std::memory_order_relaxed)) continue;
    if (count == kBatch || (count > 0 && batch[0]->pool != pool)) flush();
    batch[count++] = &receive;
  }
  flush();
  return all;
}

void ReceivePoolCore::note_low() noexcept {
  if (disarmed_.exchange(true, std::memory_order_relaxed)) return;
  times_low_.fetch_add(1, std::memory_order_relaxed);
  low_notice_.store(true, std::memory_order_release);
}

/// Not while the pool is still low: the device would report the same condition again and again.
void ReceivePoolCore::arm_again() noexcept {
  if (posted() < options_.low_water) return;
  if (!disarmed_.exchange(false, std::memory_order_relaxed)) return;
  const Status armed = queue_->arm_limit(options_.low_water);
  if (!armed) RDMACOMM_LOG(WARNING) << "the receive pool cannot report when its receives run low: " << armed.message();
}

// The public functions ------------------------------------------------------------------------------------------------

const ReceivePoolOptions& ReceivePool::options() const {
  return object().options();
}

std::span<std::byte> ReceivePool::message(const Completion& completion) const {
  return object().message(completion);
}

void ReceivePool::keep(const Completion& completion) const {
  object().keep(completion);
}

Outcome ReceivePool::give_back(const Completion& completion) const {
  return object().give_back(completion);
}

Outcome ReceivePool::give_back_unkept(std::span<const Completion> completions) noexcept {
  return ReceivePoolCore::give_back_unkept(completions);
}

int ReceivePool::posted() const {
  return object().posted();
}

int ReceivePool::times_low() const {
  return object().times_low();
}

}  // namespace rdmacomm
