// receive_pool.h - receives for the messages of many peers: buffers, and the shared receive queue for them.
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

/// The options of a pool. A value.
struct RDMACOMM_API ReceivePoolOptions {
  int depth = 1024;                  ///< receives of all channels together: 1..DeviceLimits::max_srq_wr
  std::size_t message_bytes = 4096;  ///< bytes of each receive, and the longest message that can arrive; >= 1
  int low_water = 0;                 ///< 0..depth - 1; the device reports when fewer are posted. 0: it does not

  /// Checks the ranges above.
  ///
  /// limits   RDMADevice::limits() of the device
  /// Returns  kInvalidArgument: a value outside its range; kBeyondDeviceLimit: depth; kNotSupported: the device has no
  ///          shared receive queues. The context names the value and the bound
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  /// Whether all values are equal, as they must be for all endpoints of a receive_pool_key.
  bool operator==(const ReceivePoolOptions&) const = default;
};

/// A queue of receive buffers from which many channels take their receives. Memory is then needed only for the messages
/// that are in flight, not for all messages that each of a thousand peers could send. Sessions create one pool for each
/// HcaConfig::receive_pool_key. A handle: copies share the pool.
///
/// The device holds a receive until a message takes it. The polled completion hands it to the application, which reads
/// message() and then gives the receive back. If a thread of the session calls the hooks, it gives the receive back
/// when the hook has returned, unless the hook has called keep(). Completion::id says which receive a message took.
///
/// If a pool is empty, the senders' devices retry. AdapterConfig::rnr_retry limits the retries (by default it does
/// not). The min_rnr_timer of the receiving channel sets the time between two retries. After the last one the send
/// fails with kRnrRetryExceeded. iWARP does not retry: there the connection of the message ends. One peer can take all
/// receives, so the application must limit the number of messages that a peer may have in flight.
///
/// Threads   any thread
/// Lifetime  keeps its device open; endpoints keep their pool
class RDMACOMM_API ReceivePool : public detail::SharedHandle<ReceivePoolCore> {
 public:
  using SharedHandle::SharedHandle;

  /// The options that it was created with. The reference is valid while the pool lives.
  [[nodiscard]] const ReceivePoolOptions& options() const;
  /// The message of a completed receive, until it is given back. Empty: the receive failed, or a WRITE_WITH_IMM took
  /// it.
  ///
  /// completion  of a receive on a channel of this pool, not given back yet
  [[nodiscard]] std::span<std::byte> message(const Completion& completion) const;
  /// For hooks: the receive is not given back when the hook returns. The application calls give_back() later.
  void keep(const Completion& completion) const;
  /// Posts the receive again. Its message must not be read any more. Also possible after the channel has ended.
  ///
  /// Returns  kWrongState: it was given back already; or the device's error (the receive is then lost)
  /// Cost     no allocation, lock, log or system call in the library, except once each time that the pool was low
  [[nodiscard]] Outcome give_back(const Completion& completion) const;
  /// Gives back all receives in `completions` that were not kept, many with one doorbell. `completions` are from poll()
  /// or wait(), and may be of any channels and pools.
  ///
  /// Returns  the first error of a device
  static Outcome give_back_unkept(std::span<const Completion> completions) noexcept;

  /// Receives that the device holds.
  [[nodiscard]] int posted() const;
  /// How often fewer than options().low_water receives were left. Counted when the device reports it (if its events are
  /// taken, as sessions do), and when the polling thread finds it. A session checks this count once per second.
  [[nodiscard]] int times_low() const;
};

}  // namespace rdmacomm
