// receive_pool_core.h - the object behind a ReceivePool.
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

/// The object behind a ReceivePool. A resource: neither copyable nor movable. Threads: any thread.
class ReceivePoolCore {
 public:
  /// Creates the buffers and the queue, and posts all receives.
  /// Returns  as ReceivePoolOptions::validate (kNotSupported: the device has no shared receive queues),
  ///          SharedReceiveQueue::create, RDMABuffer::allocate; or the device's error for a receive
  [[nodiscard]] static Result<std::shared_ptr<ReceivePoolCore>> create(std::shared_ptr<DeviceCore> device,
                                                                       const ReceivePoolOptions& options);
  ReceivePoolCore(const ReceivePoolCore&) = delete;
  ReceivePoolCore& operator=(const ReceivePoolCore&) = delete;

  [[nodiscard]] const ReceivePoolOptions& options() const noexcept { return options_; }
  [[nodiscard]] SharedReceiveQueue& queue() noexcept { return *queue_; }

  /// The message of a completed receive, until it is given back. Empty: the receive failed, or a WRITE_WITH_IMM took
  /// it.
  /// completion  of a receive on a channel of this pool, not given back yet
  [[nodiscard]] std::span<std::byte> message(const Completion& completion) const noexcept;
  /// For hooks: the receive is not given back when the hook returns. The application calls give_back() later.
  void keep(const Completion& completion) noexcept;
  /// Posts the receive again. Its message must not be read any more. Also possible after the channel has ended.
  /// Returns  kWrongState: it was given back already; or the device's error (the receive is then lost)
  /// Cost     no allocation, lock, log or system call in the library, except once each time that the pool was low
  [[nodiscard]] Outcome give_back(const Completion& completion) noexcept;
  /// Gives back all receives in `completions` that were not kept, many with one doorbell. The completions may be of any
  /// channels and pools.
  /// Returns  the first error of a device
  static Outcome give_back_unkept(std::span<const Completion> completions) noexcept;

  /// Receives that the device holds.
  [[nodiscard]] int posted() const noexcept { return posted_.load(std::memory_order_relaxed); }
  /// How often fewer than options().low_water receives were left. Counted when the device reports it (if its events are
  /// taken, as sessions do), and when the polling thread finds it. A session checks this count once per second.
  [[nodiscard]] int times_low() const noexcept { return times_low_.load(std::memory_order_relaxed); }
  /// Called when the device has reported IBV_EVENT_SRQ_LIMIT_REACHED of queue(). It reports again only after at least
  /// low_water receives are posted, which is checked when a receive is given back and when the next message is polled.
  /// So an application that keeps receives must give them back by itself.
  void note_low() noexcept;
  /// Whether the pool has run low since the last call, for the thread that notifies the application. Cost: one load if
  /// it has not.
  [[nodiscard]] bool take_low_notice() noexcept {
    return low_notice_.load(std::memory_order_acquire) && low_notice_.exchange(false, std::memory_order_acq_rel);
  }

 private:
  friend class ChannelCore;
  friend class CompletionQueue;
  enum class State : std::uint8_t { kHeld, kPosted, kDelivered, kKept };
  /// One receive. The device identifies it by its address.
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
  /// Takes the receive of a completion from the device. The device does not hold it any more.
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
