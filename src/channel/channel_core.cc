#include "channel/channel_core.h"

#include <algorithm>
#include <array>
#include <bit>
#include <thread>

#include "adapter/own_adapter.h"
#include "base/check_name.h"
#include "channel/receive_pool_core.h"
#include "rdmacomm/qp_address.h"
#include "verbs/describe.h"

namespace rdmacomm {
namespace {

constexpr std::size_t kDrainBatch = 16;

}  // namespace

void ChannelCore::RequestRing::allocate(int depth_) {
  depth = static_cast<std::uint32_t>(depth_);
  const std::uint32_t size = std::bit_ceil(depth);
  mask = size - 1;
  max_silent_run = depth / 2;
  entries = std::make_unique<Entry[]>(size);
}

ChannelCore::ChannelCore(std::string name, std::unique_ptr<AdapterCore> adapter, ReceivePool pool)
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
      usual_flags_(IBV_SEND_SIGNALED |
                   (adapter_->device().limits().completes_in_order ? 0U : static_cast<unsigned>(IBV_SEND_FENCE))),
      straight_(recv_cq_ == send_cq_),
      own_source_(*this) {
  send_.allocate(*adapter_->config().send_depth);
  recv_.allocate(*adapter_->config().recv_depth);
}

ChannelCore::~ChannelCore() = default;

Result<std::unique_ptr<ChannelCore>> ChannelCore::create(std::string name, std::unique_ptr<AdapterCore> adapter,
                                                         ReceivePool pool) {
  if (adapter == nullptr) {
    return make_error(Errc::kInvalidArgument, "channel \"" + name + "\" needs an adapter");
  }
  if (adapter->state() != IBV_QPS_INIT && adapter->state() != IBV_QPS_RTS) {
    return make_error(Errc::kWrongState, "channel \"" + name +
                                             "\" needs a queue pair in state INIT or RTS; this one is in state " +
                                             verbs::to_text(adapter->state()));
  }
  return std::unique_ptr<ChannelCore>(new ChannelCore(std::move(name), std::move(adapter), std::move(pool)));
}

Status ChannelCore::begin_drain() {
  if (adapter_->state() != IBV_QPS_ERR) {
    if (Status status = adapter_->to_error(); !status.ok()) return status;
  }
  if (unreported_end_.load(std::memory_order_relaxed)) return {};
  if (!adapter_->device().limits().flushes_in_error) {
    // A marker would never complete here. The silent requests ended with the move to ERR.
    send_.unreported.store(send_.silent_run, std::memory_order_relaxed);
    unreported_end_.store(true, std::memory_order_release);
    return {};
  }
  if (send_.silent_run == 0) return {};
  const Outcome posted = post_marker();
  if (posted) return {};
  return make_error(posted.code(), "cannot detect when the unsignaled requests of channel \"" + name_ +
                                       "\" have left its send queue: the device accepts no request in state ERR");
}

// The public functions ------------------------------------------------------------------------------------------------

Result<std::shared_ptr<RDMAChannel>> RDMAChannel::create(std::string name, RDMAAdapter adapter) {
  if (Status valid = check_name("channel", name); !valid) return valid.error();
  struct Whole {
    std::unique_ptr<OwnAdapter> own;  // before the channel, which uses its device and completion queue
    std::unique_ptr<ChannelCore> channel;
  };
  auto whole = std::make_shared<Whole>();
  whole->own = std::move(adapter.own_);
  auto channel = ChannelCore::create(std::move(name), whole->own ? whole->own->take_adapter() : nullptr);
  if (!channel) return std::move(channel).error();
  whole->channel = std::move(channel).value();
  whole->channel->is_own_ = true;
  return std::shared_ptr<RDMAChannel>(whole, whole->channel.get());
}

Status RDMAChannel::connect(const QpAddress& remote) {
  ChannelCore& core = core_of(*this);
  if (core.is_own_) return core.adapter().connect(remote);
  return make_error(Errc::kWrongState,
                    "channel \"" + name() + "\" belongs to an endpoint, which connects it: do not call connect()");
}

const std::string& RDMAChannel::name() const noexcept {
  return core_of(*this).name();
}

const AdapterConfig& RDMAChannel::config() const noexcept {
  return core_of(*this).adapter().config();
}

RDMADevice RDMAChannel::device() const noexcept {
  return core_of(*this).adapter().device().shared_from_this();
}

ProtectionDomain RDMAChannel::domain() const noexcept {
  return core_of(*this).adapter().domain();
}

std::uint32_t RDMAChannel::max_inline_bytes() const noexcept {
  return core_of(*this).max_inline_bytes_;
}

std::uint32_t RDMAChannel::max_message_bytes() const noexcept {
  return core_of(*this).max_message_bytes_;
}

const QpAddress& RDMAChannel::address() const noexcept {
  return core_of(*this).adapter().address();
}

const std::optional<QpAddress>& RDMAChannel::remote_address() const noexcept {
  return core_of(*this).adapter().remote_address();
}

std::uint32_t RDMAChannel::path_mtu_bytes() const noexcept {
  return core_of(*this).adapter().path_mtu_bytes();
}

bool RDMAChannel::connected() const noexcept {
  return core_of(*this).adapter().connected();
}

const ReceivePool& RDMAChannel::receive_pool() const noexcept {
  return core_of(*this).receive_pool();
}

int RDMAChannel::send_depth() const noexcept {
  return static_cast<int>(core_of(*this).send_.depth);
}

int RDMAChannel::recv_depth() const noexcept {
  return static_cast<int>(core_of(*this).recv_.depth);
}

int RDMAChannel::outstanding_sends() const noexcept {
  return core_of(*this).outstanding_sends();
}

int RDMAChannel::outstanding_recvs() const noexcept {
  return core_of(*this).outstanding_recvs();
}

ibv_qp* RDMAChannel::native_handle() const noexcept {
  return core_of(*this).adapter().qp();
}

Status RDMAChannel::drain(Deadline deadline, const std::function<void(const Completion&)>& function) {
  ChannelCore& core = core_of(*this);
  if (!core.owns_queue()) {
    return make_error(Errc::kWrongState, "channel \"" + name() +
                                             "\" cannot be drained alone, because it shares its completion queue with "
                                             "other channels: close its endpoint instead");
  }
  if (Status status = core.begin_drain(); !status.ok()) return status;
  while (!core.drained() || core.keeps_any()) {
    std::array<Completion, kDrainBatch> batch;
    const Polled polled = poll(batch);
    if (function) {
      for (const Completion& each : polled) function(each);
    } else {
      (void)ReceivePool::give_back_unkept({polled.begin(), polled.end()});
    }
    if (!polled) {
      return make_error(polled.outcome().code(),
                        "cannot drain channel \"" + name() + "\": its completion queue has failed");
    }
    if (!polled.empty()) continue;
    core.found_empty();
    if (deadline.passed() && !core.drained()) {
      return make_error(Errc::kTimeout, "channel \"" + name() + "\" still has " + std::to_string(outstanding_sends()) +
                                            " sends and " + std::to_string(outstanding_recvs()) +
                                            " receives outstanding");
    }
    std::this_thread::yield();
  }
  return {};
}

}  // namespace rdmacomm
