// adapter.h - a queue pair: its attributes, and its way from INIT over RTR to RTS.
// Layer: adapter. Uses: base, verbs, device.
#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

#include "rdmacomm/device.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

struct ibv_qp;

namespace rdmacomm {

class RDMACOMM_API OwnAdapter;

/// Everything that can be chosen about one queue pair. A value; the defaults suit a request-response channel.
///
/// If an optional field is empty, the library chooses a value that fits the device. If it has a value, the library uses
/// or refuses it. Depths and numbers of slices are 1..the device's limit.
struct RDMACOMM_API AdapterConfig {
  // Depths and sizes.
  std::optional<int> send_depth{};  ///< send requests outstanding; empty: 128, or the device's limit if smaller
  std::optional<int> recv_depth{};  ///< receive requests outstanding; empty: 128, or the device's limit if smaller
  std::optional<int>
      max_send_slices{};  ///< slices (SGEs) of one send request; empty: 4, or the device's limit if smaller
  std::optional<int> max_recv_slices{};  ///< slices of one receive request; empty: 4, or the device's limit if smaller
  /// Slices of one READ: at most max_send_slices (some devices allow fewer for a READ than for other requests). Empty:
  /// the largest number that both allow.
  std::optional<int> max_read_slices{};
  /// Bytes of payload that are copied into a request at posting, 0..65535; 0: none; empty: 64, or the device's limit if
  /// smaller. Devices do not report this limit, which also depends on the values above: the library finds it when it
  /// creates the queue pair.
  std::optional<int> max_inline_bytes{};

  // Path.
  std::uint32_t mtu_bytes =
      4096;  ///< 256, 512, 1024, 2048 or 4096: upper bound; the path uses the smaller of both ends' values
  std::uint8_t traffic_class = 0;  ///< 0..255: DSCP (6 bits) and ECN (2 bits) of the packets
  std::uint8_t service_level = 0;  ///< 0..15 on InfiniBand; 0..7, the VLAN priority, on Ethernet
  std::uint8_t hop_limit = 64;     ///< 1..255
  std::uint16_t pkey_index = 0;    ///< index in the port's P_Key table; ignored if `pkey` is given
  /// P_Key of the partition. The port's table may have it as a full or as a limited member. Empty: pkey_index decides.
  std::optional<std::uint16_t> pkey{};

  // Retries.
  /// How long to wait for an acknowledgement; rounded up to 4.096 us x 2^n, n = 1..31; 0: forever.
  std::chrono::microseconds ack_timeout{67'108};  // n = 14
  /// 0..7 repeats before kRetryExceeded.
  std::uint8_t retry_count = 7;
  /// 0..6 repeats before kRnrRetryExceeded; 7: forever.
  std::uint8_t rnr_retry = 7;
  /// How long a sender waits after "receiver not ready"; rounded up to one of 32 steps from 10 us to 655.36 ms.
  std::chrono::microseconds min_rnr_timer{640};

  /// READs and atomics outstanding at a time as the initiator; 0..the device's limit; empty: 16, or the device's limit
  /// if smaller. connect() reduces it to the number that the peer accepts as the responder.
  std::optional<int> max_read_depth{};
  /// READs and atomics of the peer outstanding at a time, as the responder; 0..the device's limit; empty: 16, or the
  /// device's limit if smaller.
  std::optional<int> max_read_depth_responder{};

  /// Checks all values that are given.
  ///
  /// limits   RDMADevice::limits() of the device
  /// Returns  kInvalidArgument: a value outside the range given above; kBeyondDeviceLimit: a value above the one in
  ///          `limits`. The context names the field, the value and the bound
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  /// The same configuration with a value for each empty field, except max_inline_bytes, which has no limit in `limits`.
  [[nodiscard]] AdapterConfig fitted(const DeviceLimits& limits) const;

  // The encodings of the verbs (ibv_modify_qp(3)).
  [[nodiscard]] std::uint8_t ack_timeout_code() const noexcept;  ///< ack_timeout as 1..31: 4.096 us x 2^n; 0: forever
  [[nodiscard]] std::uint8_t min_rnr_timer_code()
      const noexcept;  ///< min_rnr_timer as 0..31: 1 is 10 us, 31 is 491.52 ms, 0 is 655.36 ms
};

/// The GID and the protection domain of a queue pair. A value.
struct RDMACOMM_API AdapterParts {
  std::optional<GidEntry> gid{};  ///< one of RDMADevice::gids(); empty: DeviceOptions decide, else the port's best GID
  ProtectionDomain domain{};      ///< on the same device; empty: the device's own
};

/// One reliable-connected queue pair with its own completion queue: for programs that exchange addresses themselves.
/// Sessions do not use this class. RDMAChannel::create() makes a channel from it. Movable, not copyable.
///
/// Threads   connect() and to_error() by one thread at a time; the other functions by any thread
/// Lifetime  keeps its device open
class RDMACOMM_API RDMAAdapter {
 public:
  /// Creates the queue pair and moves it to INIT.
  ///
  /// Returns  kInvalidArgument, kBeyondDeviceLimit: config.validate(); kInvalidArgument also: a P_Key that the port
  ///          does not have (the context lists the port's P_Keys); kBeyondDeviceLimit also: inline data (the context
  ///          has the requested value and the limit that was found); kNoUsableGid; or the system's error
  [[nodiscard]] static Result<RDMAAdapter> create(const RDMADevice& device, const AdapterConfig& config = {},
                                                  const AdapterParts& parts = {});
  /// Takes the queue pair of `other`. After that, `other` may only be assigned to or destroyed; any other call on it is
  /// a bug in the program and ends it.
  RDMAAdapter(RDMAAdapter&& other) noexcept;
  /// The same. The queue pair that this object had is destroyed.
  RDMAAdapter& operator=(RDMAAdapter&& other) noexcept;
  /// Destroys the queue pair and its completion queue.
  ~RDMAAdapter();

  /// The address that the peer needs to connect to this queue pair: send it the bytes of encode().
  [[nodiscard]] const QpAddress& address() const;
  /// Moves the queue pair from INIT over RTR to RTS, towards `remote`. Both ends call it, in any order.
  ///
  /// Returns  kWrongState: not in INIT; kIncompatiblePeer: other transport, link layer or GID type (the context has
  ///          both ends' values); or the device's error (for example: no route to the peer's GID), with the transition,
  ///          its values and the likely cause. After an error the queue pair cannot be used any more
  [[nodiscard]] Status connect(const QpAddress& remote);
  /// Moves the queue pair to ERR: outstanding requests complete as kFlushed.
  [[nodiscard]] Status to_error();

  /// The configuration given to create(), with a value for each empty field.
  [[nodiscard]] const AdapterConfig& config() const;
  /// The inline limit that the device granted, in bytes: at least config().max_inline_bytes.
  [[nodiscard]] std::uint32_t max_inline_bytes() const;
  /// The smaller of both ends' MTUs; 0 before connect().
  [[nodiscard]] std::uint32_t path_mtu_bytes() const;
  /// Whether sends may be posted: connect() has reached RTS, and to_error() was not called.
  [[nodiscard]] bool connected() const;
  /// The device that the queue pair was created on.
  [[nodiscard]] RDMADevice device() const;
  /// For ibv_query_qp(3) and other calls that this library does not offer. The ibv_qp also names its completion queues.
  [[nodiscard]] ibv_qp* native_handle() const;

 private:
  friend class RDMAChannel;  // RDMAChannel::create() takes `own_`
  RDMACOMM_LOCAL explicit RDMAAdapter(std::unique_ptr<OwnAdapter> own) noexcept;
  RDMACOMM_LOCAL [[nodiscard]] OwnAdapter& own() const;

  std::unique_ptr<OwnAdapter> own_;
};

}  // namespace rdmacomm
