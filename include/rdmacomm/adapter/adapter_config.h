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
  // Depths and sizes, each 1..the device's limit.
  int send_depth = 128;       ///< send requests outstanding
  int recv_depth = 128;       ///< receive requests outstanding
  int max_send_slices = 4;    ///< slices (SGEs) of one send request
  int max_recv_slices = 4;    ///< slices of one receive request
  int max_read_slices = 0;    ///< slices of one READ, which some devices scatter less; 0: what both others allow
  int max_inline_bytes = 64;  ///< payload copied into a request at posting; 0: none; the device may refuse large ones

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

  // READs and atomics outstanding at a time; 0..255; cut down to what both devices can do.
  int max_read_depth = 16;            ///< as the initiator
  int max_read_depth_responder = 16;  ///< as the responder

  /// kInvalidArgument: outside the range given above; kBeyondDeviceLimit: more than `limits` has. The context
  /// names the field, the value and the bound.
  [[nodiscard]] Status validate(const DeviceLimits& limits) const;

  // The encodings of the verbs (ibv_modify_qp(3)).
  [[nodiscard]] std::uint8_t ack_timeout_code() const noexcept;  ///< 0..31: 4.096 us x 2^n
  [[nodiscard]] std::uint8_t min_rnr_timer_code()
      const noexcept;  ///< 0..31: 1 is 10 us, 31 is 491.52 ms, 0 is 655.36 ms
};

}  // namespace rdmacomm
