// transport.h - what a device's queue pairs speak on the wire.
// Layer: verbs. Uses: base.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>

namespace rdmacomm::verbs {

/// Queue pairs of different transports cannot be connected. The values travel in QpAddress.
enum class Transport : std::uint8_t {
  kUnknown = 0,
  kInfiniBand = 1,
  kRoce = 2,      ///< RoCE v1 and v2: InfiniBand's transport over Ethernet
  kIwarp = 3,     ///< RDMA over TCP: its connections are made by rdma_cm only
  kSoftware = 4,  ///< the software device: memory shared by processes of one host
};

/// "InfiniBand", "RoCE", "iWARP", "software device"; "transport N" for anything else.
[[nodiscard]] std::string to_text(Transport transport);

/// Whether queue pairs of `context` live on TCP connections and fail with them, whoever ended those (iWARP).
/// IBV_WC_LOC_QP_OP_ERR and IBV_EVENT_QP_FATAL then say nothing of the cause; the connection does.
[[nodiscard]] bool fails_with_connection(const ibv_context& context) noexcept;

}  // namespace rdmacomm::verbs
