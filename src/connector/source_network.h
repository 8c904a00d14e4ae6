// source_network.h - whose share of a server's places and memory a client uses.
// Layer: connector.
#pragma once

#include <array>
#include <compare>
#include <cstdint>
#include <string>
#include <string_view>

namespace rdmacomm {

/// Where a connection comes from: what one host can have addresses of at will counts as one. That is an IPv4 address,
/// or an IPv6 network of 64 bits; but all hosts of a link have link-local addresses (fe80::), so there it is an address
/// with its interface. A value.
struct SourceNetwork {
  /// IPv4 in its mapped form; IPv6 without its interface identifier, but fe80:: and ::1 whole.
  std::array<std::uint8_t, 16> bytes{};
  std::string link{};  ///< the interface of a link-local address; else empty

  /// peer  as Connector::peer_address() and EndPoint::peer(): "10.0.0.2:41234", "[2001:db8::1]:41234",
  ///       "[fe80::1%eth0]:41234"; what follows behind a blank is left out. All texts that contain no address are one
  ///       source.
  [[nodiscard]] static SourceNetwork of(std::string_view peer);
  /// "10.0.0.2", "2001:db8::", "fe80::1%eth0"; "::" where there was no address.
  [[nodiscard]] std::string to_text() const;
  [[nodiscard]] auto operator<=>(const SourceNetwork&) const = default;
};

}  // namespace rdmacomm
