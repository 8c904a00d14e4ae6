// describe.h - numbers of the verbs as text, and completion statuses as Errc.
// Layer: verbs. Uses: base.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <string>
#include <string_view>

#include "rdmacomm/errc.h"

namespace rdmacomm::verbs {

/// "RESET", "INIT", "RTR", "RTS", "SQD", "SQE", "ERR"; "state N" for anything else.
[[nodiscard]] std::string to_text(ibv_qp_state state);
/// "DOWN", "INIT", "ARMED", "ACTIVE", ...
[[nodiscard]] std::string to_text(ibv_port_state state);
/// "256" to "4096" (bytes).
[[nodiscard]] std::string to_text(ibv_mtu mtu);
/// "Ethernet", "InfiniBand" or "unspecified", from ibv_port_attr::link_layer.
[[nodiscard]] std::string link_layer_text(std::uint8_t link_layer);
/// "IB", "RoCE v1" or "RoCE v2", from ibv_gid_entry::gid_type.
[[nodiscard]] std::string gid_type_text(std::uint32_t gid_type);
/// The GID as an IPv6 address, or "::ffff:10.0.0.1" if it is a mapped IPv4 address.
[[nodiscard]] std::string to_text(const ibv_gid& gid);

/// "0x8001".
[[nodiscard]] std::string pkey_text(std::uint16_t pkey);

/// 256..4096 -> ibv_mtu; false for any other number.
[[nodiscard]] bool mtu_from_bytes(std::uint32_t bytes, ibv_mtu& mtu) noexcept;
[[nodiscard]] std::uint32_t mtu_bytes(ibv_mtu mtu) noexcept;

/// The Errc of a completion status. Cost: a table look-up; kOk for IBV_WC_SUCCESS.
[[nodiscard]] Errc errc_of(ibv_wc_status status) noexcept;
/// One sentence: the meaning of the completion error, its likely cause, and the next thing to check.
/// Empty for kOk and for codes that are not completion errors.
[[nodiscard]] std::string_view completion_advice(Errc code) noexcept;

}  // namespace rdmacomm::verbs
