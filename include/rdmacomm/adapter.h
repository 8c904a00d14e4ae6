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
struct RDMACOMM_API AdapterConfig {
  // Depths and sizes: 1..the device's limit. If empty, it is chosen to fit the device; if given, it is used or refused.
  std::optional<int> send_depth{};       ///< send requests outstanding; empty: 128, or as many as the device has
  std::optional<int> recv_depth{};       ///< receive requests outstanding; empty: the same
  std::optional<int> max_send_slices{};  ///< slices (SGEs) of one send request; empty: 4, or as many as the device has
  std::optional<int> max_recv_slices{};  ///< slices of one receive request; empty: the same
  /// Slices of one READ, which some devices scatter less: at most max_send_slices; empty: as many as both allow.
  std::optional<int> max_read_slices{};
  /// Payload copied into a request at posting, 0..65535; 0: none; empty: 64, or what the device takes. No device says
  /// its limit, which depends on the values above: the library finds it when it makes the queue pair.
  std::optional<int> max_inline_bytes{};

  // Path.
  std::uint32_t mtu_bytes = 4096;  ///< 256, 512, 1024, 2048 or 4096: the largest to use; both sides' minimum is
  std::uint8_t traffic_class = 0;  ///< 0..255: DSCP (6 bits) and ECN (2 bits) of the packets
  std::uint8_t service_level = 0;  ///< 0..15 on InfiniBand; 0..7, the VLAN priority, on Ethernet
  std::uint8_t hop_limit = 64;     ///< 1..255
  std::uint16_t pkey_index = 0;    ///< in the port's P_Key table; not looked at where `pkey` is given
  /// P_Key of the partition, found in the port's table whether as a full or a limited member; empty: by pkey_index.
  std::optional<std::uint16_t> pkey{};

  // Retries.
  /// How long to wait for an acknowledgement; rounded up to 4.096 us x 2^n, n = 1..31; 0: for ever.
  std::chrono::microseconds ack_timeout{67'108};  // n = 14
  std::uint8_t retry_count = 7;                   ///< 0..7 repeats before kRetryExceeded
  std::uint8_t rnr_retry = 7;                     ///< 0..6 repeats before kRnrRetryExceeded; 7: for ever
  /// How long a sender waits after "receiver not ready": rounded up to one of 32 steps from 10 us to 655.36 ms.
  std::chrono::microseconds min_rnr_timer{640};

  // READs and atomics outstanding at a time; 0..the device's limit; empty: 16, or as many as the device has. The
  // initiator's is cut down to what the peer accepts as the responder.
  std::optional<int> max_read_depth{};            ///< as the initiator
  std::optional<int> max_read_depth_responder{};  ///< as the responder

  /// kInvalidArgument: outside the range given above; kBeyondDeviceLimit: more than `limits` has. The context
  /// names the field, the value and the bound.
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;
  /// The same with a value for all that was left empty, but for max_inline_bytes, of which `limits` say nothing.
  [[nodiscard]] AdapterConfig fitted(const DeviceLimits& limits) const;

  // The encodings of the verbs (ibv_modify_qp(3)).
  [[nodiscard]] std::uint8_t ack_timeout_code() const noexcept;  ///< 0..31: 4.096 us x 2^n
  [[nodiscard]] std::uint8_t min_rnr_timer_code()
      const noexcept;  ///< 0..31: 1 is 10 us, 31 is 491.52 ms, 0 is 655.36 ms
};

/// What a queue pair is made with besides its attributes. A value.
struct RDMACOMM_API AdapterParts {
  std::optional<GidEntry>
      gid{};  ///< what peers address, of RDMADevice::gids(); empty: what DeviceOptions say, else the best of the port
  ProtectionDomain domain{};  ///< on the same device; empty: the device's own
};

/// One reliable-connected queue pair, with a completion queue of its own: for programs that exchange addresses by
/// themselves. Sessions make their queue pairs without this. RDMAChannel::create() makes a channel of it. Movable, not
/// copyable.
///
/// Threads   connect() and to_error() by one thread at a time; the rest by any
/// Lifetime  keeps its device open
class RDMACOMM_API RDMAAdapter {
 public:
  /// Creates the queue pair and moves it to INIT.
  ///
  /// Returns  kInvalidArgument, kBeyondDeviceLimit: config.validate(); kInvalidArgument also: a P_Key that the port
  ///          does not have (the context lists those that it has); kBeyondDeviceLimit also: inline data (the context
  ///          has what was asked for and the limit that was found); kNoUsableGid; or the system's error
  [[nodiscard]] static Result<RDMAAdapter> create(const RDMADevice& device, const AdapterConfig& config = {},
                                                  const AdapterParts& parts = {});
  RDMAAdapter(RDMAAdapter&& other) noexcept;
  RDMAAdapter& operator=(RDMAAdapter&& other) noexcept;
  ~RDMAAdapter();

  /// What the peer must know to connect to this queue pair: send it the bytes of encode().
  [[nodiscard]] const QpAddress& address() const;
  /// Moves the queue pair from INIT over RTR to RTS, towards `remote`. Both ends call it, in any order.
  ///
  /// Returns  kWrongState: not in INIT; kIncompatiblePeer: other transport, link layer or GID type (the context has
  ///          both sides); or what the device said (for example: no route to the peer's GID), with the transition, its
  ///          values and the likely cause. After an error the queue pair is of no more use
  [[nodiscard]] Status connect(const QpAddress& remote);
  /// Moves the queue pair to ERR: outstanding requests complete as kFlushed.
  [[nodiscard]] Status to_error();

  /// As given to create(), with everything that was left empty filled in.
  [[nodiscard]] const AdapterConfig& config() const;
  /// The inline limit that the device granted, at least config().max_inline_bytes.
  [[nodiscard]] std::uint32_t max_inline_bytes() const;
  /// The smaller of both ends' MTUs; 0 before connect().
  [[nodiscard]] std::uint32_t path_mtu_bytes() const;
  /// Whether sends may be posted: RTS was reached, and not left by this side.
  [[nodiscard]] bool connected() const;
  [[nodiscard]] RDMADevice device() const;
  /// For ibv_query_qp(3) and what this library does not do. Its completion queues are in it.
  [[nodiscard]] ibv_qp* native_handle() const;

 private:
  friend class RDMAChannel;  // whose create() takes over what it owns
  RDMACOMM_LOCAL explicit RDMAAdapter(std::unique_ptr<OwnAdapter> own) noexcept;
  RDMACOMM_LOCAL [[nodiscard]] OwnAdapter& own() const;

  std::unique_ptr<OwnAdapter> own_;
};

}  // namespace rdmacomm
