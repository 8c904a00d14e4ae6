// receive_pool_core.h - what a ReceivePool is a handle of.
// Layer: channel.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "device/device_core.h"
#include "device/shared_receive_queue.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/completion.h"
#include "rdmacomm/receive_pool.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// A resource: neither copyable nor movable. Threads: all functions from any.
class ReceivePoolCore {
 public:
  /// Makes the buffers and the queue, and posts all.
  /// Returns  as ReceivePoolOptions::validate (kNotSupported: the device has no shared receive queues),
  ///          SharedReceiveQueue::create, RDMABuffer::allocate; or what the device said to a receive
  [[nodiscard]] static Result<std::shared_ptr<ReceivePoolCore>> create(std::shared_ptr<DeviceCore> device,
                                                                       const ReceivePoolOptions& options);
  ReceivePoolCore(const ReceivePoolCore&) = delete;
  ReceivePoolCore& operator=(const ReceivePoolCore&) = delete;

  [[nodiscard]] const ReceivePoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] SharedReceiveQueue& queue() noexcept { return *queue_; }

  /// The message of a completed receive, until it is given back; empty: it failed, or was a WRITE_WITH_IMM's.
  /// completion  of a receive on a channel of this pool, not given back yet
  [[nodiscard]] std::span<std::byte> message(const Completion& completion) const noexcept;
  /// To be called by a hook: the receive is not given back when the hook returns, but by give_back().
  void keep(const Completion& completion) noexcept;
  /// Posts the receive again: its message is not to be looked at any more. Also after the channel has ended.
  /// Returns  kWrongState: it was given back already; or what the device said (the receive is then of no more use)
  /// Cost     no allocation, lock, log or system call in the library, but once for each time that the pool was low
  [[nodiscard]] Outcome give_back(const Completion& completion) noexcept;
  /// Of `completions`, of whatever channels and pools, gives all receives back that were not kept, many with one
  /// doorbell.
  /// Returns  what a device said first
  static Outcome give_back_unkept(std::span<const Completion> completions) noexcept;

  /// Receives that are with the device.
  [[nodiscard]] int posted() const noexcept { return posted_.load(std::memory_order_relaxed); }
  /// How often fewer than options().low_water were left: as the device says, where its events are taken, as sessions
  /// do; or as the one who polls finds, which a session looks at each second.
  [[nodiscard]] int times_low() const noexcept { return times_low_.load(std::memory_order_relaxed); }
  /// The device has said IBV_EVENT_SRQ_LIMIT_REACHED of queue(). It will again, once there are low_water of them when
  /// one is given back, or when the next message is polled. So who keeps receives must itself see to it that they come
  /// back.
  void note_low() noexcept;
  /// Whether it has run low since this was last asked: for who tells the application. Cost: one load where it has not.
  [[nodiscard]] bool take_low_notice() noexcept {
    return low_notice_.load(std::memory_order_acquire) && low_notice_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  friend class ChannelCore;
  friend class CompletionQueue;
  enum class State : std::uint8_t { kHeld, kPosted, kDelivered, kKept };
  /// One receive. Its address is what the device knows it by.
  struct Receive {
    ReceivePoolCore* pool = nullptr;
    std::uint32_t index = 0;
    std::atomic<State> state{State::kHeld};
  };

  ReceivePoolCore(std::shared_ptr<DeviceCore> device, const ReceivePoolOptions& options, RDMABuffer memory,
                  std::unique_ptr<SharedReceiveQueue> queue);
  [[nodiscard]] Status post_all();
  [[nodiscard]] Outcome post(std::span<Receive*> receives) noexcept;
  void arm_again() noexcept;
  /// The receive of a completion of the device's, which has it no more.
  static Receive& take(std::uint64_t wr_id) noexcept;

  const std::shared_ptr<DeviceCore> device_;
  const ReceivePoolOptions options_;
  const RDMABuffer memory_;
  const std::unique_ptr<Receive[]> receives_;
  const std::unique_ptr<SharedReceiveQueue> queue_;
  std::atomic<int> posted_{0};
  std::atomic<int> times_low_{0};
  std::atomic<bool> disarmed_{false};
  std::atomic<bool> low_notice_{false};
};

}  // namespace rdmacomm
