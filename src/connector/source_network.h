// source_network.h - identifies the origin of a client, because each origin has a share of endpoints and memory.
// Layer: connector.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacomm {

/// The origin of a connection. All addresses that one host can easily obtain count as one origin: an IPv4 address, or
/// an IPv6 network of 64 bits. All hosts of a link have link-local addresses (fe80::) in one network, so there the
/// origin is the address with its interface. A value.
struct SourceNetwork {
  /// IPv4 in its mapped form; IPv6 without its interface identifier, but fe80:: and ::1 in full.
  std::array<std::uint8_t, 16> bytes{};
  std::string link{};  ///< the interface of a link-local address; else empty

  /// peer  as Connector::peer_address() and EndPoint::peer(): "10.0.0.2:41234", "[2001:db8::1]:41234",
  ///       "[fe80::1%eth0]:41234"; text after a blank is ignored. All texts that contain no address are one origin.
  [[nodiscard]] static SourceNetwork of(std::string_view peer);
  /// "10.0.0.2", "2001:db8::", "fe80::1%eth0"; "::" if the text contained no address.
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] auto operator<=>(const SourceNetwork&) const = default;
};

}  // namespace rdmacomm
