// receive_pool.h - receives for the messages of many peers: buffers, and the shared receive queue they are posted to.
// Layer: channel. Uses: base, device.
#pragma once

#include <cstddef>
#include <span>

#include "rdmacomm/completion.h"
#include "rdmacomm/device.h"
#include "rdmacomm/handle.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMACOMM_API ReceivePoolCore;
template <>
inline constexpr const char* detail::kHandleName<ReceivePoolCore> = "ReceivePool";

/// What a pool is made with. A value.
struct RDMACOMM_API ReceivePoolOptions {
  int depth = 1024;                  ///< receives, of all channels together: 1..DeviceLimits::max_srq_wr
  std::size_t message_bytes = 4096;  ///< of each: the longest message that can arrive; >= 1
  int low_water = 0;                 ///< 0..depth - 1; with fewer posted, the device tells. 0: it does not

  /// Returns  kInvalidArgument: a value outside its range; kBeyondDeviceLimit: depth; kNotSupported: the device has no
  ///          shared receive queues. The context names the value and the bound
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  bool operator==(const ReceivePoolOptions&) const = default;
};

/// Buffers that are posted as receives to a queue that many channels take from: memory for the messages that are under
/// way, instead of for as many as each of a thousand peers may send. Sessions make one for each
/// HcaConfig::receive_pool_key. A handle: copies share the pool.
///
/// A receive is with the device until a message takes it. Its completion, polled, hands it to the application, which
/// reads message() and gives it back. If a thread of the session calls the hooks, it is given back when the hook has
/// returned, unless the hook has called keep(). Completion::id says which receive a message took.
///
/// If a pool is empty, the senders' devices try again, each as often as its AdapterConfig::rnr_retry says (by default
/// for ever), each time after the min_rnr_timer of the receiving channel, and then fail with kRnrRetryExceeded. iWARP
/// does not try again: there the connection that brought the message ends. One peer can take all receives: the
/// application bounds what a peer may have under way.
///
/// Threads   all functions from any
/// Lifetime  keeps its device open; endpoints keep their pool
class RDMACOMM_API ReceivePool : public detail::SharedHandle<ReceivePoolCore> {
 public:
  using SharedHandle::SharedHandle;

  [[nodiscard]] const ReceivePoolOptions& options() const;
  /// The message of a completed receive, until it is given back; empty: it failed, or was a WRITE_WITH_IMM's.
  /// completion  of a receive on a channel of this pool, not given back yet
  [[nodiscard]] std::span<std::byte> message(const Completion& completion) const;
  /// To be called by a hook: the receive is not given back when the hook returns, but by give_back().
  void keep(const Completion& completion) const;
  /// Posts the receive again: its message is not to be looked at any more. Also after the channel has ended.
  /// Returns  kWrongState: it was given back already; or what the device said (the receive is then of no more use)
  /// Cost     no allocation, lock, log or system call in the library, but once for each time that the pool was low
  [[nodiscard]] Outcome give_back(const Completion& completion) const;
  /// Of `completions` that poll() or wait() has filled, of whatever channels and pools, gives all receives back that
  /// were not kept, many with one doorbell.
  /// Returns  what a device said first
  static Outcome give_back_unkept(std::span<const Completion> completions) noexcept;

  /// Receives that are with the device.
  [[nodiscard]] int posted() const;
  /// How often fewer than options().low_water were left. Counted when the device says so, if its events are taken, as
  /// sessions do; and when the thread that polls finds it, which a session looks at each second.
  [[nodiscard]] int times_low() const;
};

}  // namespace rdmacomm
