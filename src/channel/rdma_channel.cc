#include "rdmacomm/channel/rdma_channel.h"

#include <algorithm>
#include <array>
#include <bit>
#include <thread>

#include "rdmacomm/channel/receive_pool.h"
#include "rdmacomm/verbs/describe.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kDrainBatch = 16;

}  // namespace

void RDMAChannel::RequestRing::allocate(int depth_) {
  depth = static_cast<std::uint32_t>(depth_);
  const std::uint32_t size = std::bit_ceil(depth);
  mask = size - 1;
  max_silent_run = depth / 2;
  entries = std::make_unique<Entry[]>(size);
}

RDMAChannel::RDMAChannel(std::string name, std::unique_ptr<RDMAAdapter> adapter, std::shared_ptr<ReceivePool> pool)
    : name_(std::move(name)),
      pool_(std::move(pool)),
      adapter_(std::move(adapter)),
      qp_(adapter_->qp()),
      send_cq_(adapter_->send_cq().get()),
      recv_cq_(adapter_->recv_cq().get()),
      max_send_slices_(static_cast<std::uint32_t>(*adapter_->config().max_send_slices)),
      max_read_slices_(static_cast<std::uint32_t>(*adapter_->config().max_read_slices)),
      max_recv_slices_(static_cast<std::uint32_t>(*adapter_->config().max_recv_slices)),
      max_inline_bytes_(adapter_->max_inline_bytes()),
      max_message_bytes_(adapter_->device().limits().max_message_bytes),
      order_flags_(adapter_->device().limits().completes_in_order ? 0U : static_cast<unsigned>(IBV_SEND_FENCE)) {
  send_.allocate(*adapter_->config().send_depth);
  recv_.allocate(*adapter_->config().recv_depth);
}

RDMAChannel::~RDMAChannel() = default;

Result<std::unique_ptr<RDMAChannel>> RDMAChannel::create(std::string name, std::unique_ptr<RDMAAdapter> adapter,
                                                         std::shared_ptr<ReceivePool> pool) {
  if (adapter == nullptr) {
    return make_error(Errc::kInvalidArgument, "channel \"" + name + "\" needs an adapter");
  }
  if (adapter->state() != IBV_QPS_INIT) {
    return make_error(Errc::kWrongState, "channel \"" + name + "\" needs a queue pair in INIT, this one is in " +
                                             verbs::to_text(adapter->state()));
  }
  return std::unique_ptr<RDMAChannel>(new RDMAChannel(std::move(name), std::move(adapter), std::move(pool)));
}

Status RDMAChannel::begin_drain() {
  if (adapter_->state() != IBV_QPS_ERR) {
    if (Status status = adapter_->to_error(); !status.ok()) return status;
  }
  if (untold_end_.load(std::memory_order_relaxed)) return {};
  if (!adapter_->device().limits().flushes_in_error) {
    // No marker would ever come back. The end of silent requests was the move to ERR.
    send_.untold.store(send_.silent_run, std::memory_order_relaxed);
    untold_end_.store(true, std::memory_order_release);
    return {};
  }
  if (send_.silent_run == 0) return {};
  const Outcome posted = post_marker();
  if (posted) return {};
  return make_error(posted.code(), "cannot find out when the unsignaled requests of channel \"" + name_ +
                                       "\" are out of its send queue: the device takes no request in ERR");
}

Status RDMAChannel::drain(Deadline deadline, const std::function<void(const Completion&)>& function) {
  if (Status status = begin_drain(); !status.ok()) return status;
  while (!drained()) {
    std::array<Completion, kDrainBatch> batch;
    const Polled polled = poll(batch);
    if (function) {
      for (const Completion& each : polled) function(each);
    } else {
      (void)ReceivePool::give_back_unkept({polled.begin(), polled.end()});
    }
    if (!polled) {
      return make_error(polled.outcome().code(),
                        "cannot drain channel \"" + name_ + "\": its completion queue has failed");
    }
    if (!polled.empty()) continue;
    found_empty();
    if (deadline.passed() && !drained()) {
      return make_error(Errc::kTimeout, "channel \"" + name_ + "\" still has " + std::to_string(outstanding_sends()) +
                                            " sends and " + std::to_string(outstanding_recvs()) +
                                            " receives outstanding");
    }
    std::this_thread::yield();
  }
  return {};
}

}  // namespace rdmacomm
