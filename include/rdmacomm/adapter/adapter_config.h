// adapter_config.h - the attributes of a queue pair, with units.
// Layer: adapter. Uses: base, device.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>

#include "rdmacomm/base/result.h"
#include "rdmacomm/device/rdma_device.h"

namespace rdmacomm {

/// Everything that can be chosen about one queue pair. A value; the defaults suit a request-response channel.
struct AdapterConfig {
  // Depths and sizes: 1..the device's limit. What is left empty adapts to the device; what is given is had, or refused.
  std::optional<int> send_depth{};       ///< send requests outstanding; empty: 128, or as many as the device has
  std::optional<int> recv_depth{};       ///< receive requests outstanding; empty: the same
  std::optional<int> max_send_slices{};  ///< slices (SGEs) of one send request; empty: 4, or as many as the device has
  std::optional<int> max_recv_slices{};  ///< slices of one receive request; empty: the same
  /// Slices of one READ, which some devices scatter less: at most max_send_slices; empty: as many as both allow.
  std::optional<int> max_read_slices{};
  /// Payload copied into a request at posting, 0..65535; 0: none; empty: 64, or what the device takes. No device says its
  /// limit, which depends on the values above: RDMAAdapter::create() finds it.
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

}  // namespace rdmacomm
