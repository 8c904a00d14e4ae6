// open_device.h - opens the device that leads to a server, or at which a server's clients arrive.
// Layer: session. Uses: base, device, connector.
#pragma once

#include <memory>
#include <optional>

#include "rdmacomm/base/deadline.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/connector/connector_kind.h"
#include "rdmacomm/connector/tcp_options.h"
#include "rdmacomm/device/rdma_device.h"

namespace rdmacomm {

/// How the route to open_device() is found. A value.
struct OpenFor {
  HostPort address{};      ///< client: the server; server: where it listens, an empty host being everywhere
  bool is_server = false;  ///< whose address that is
  ConnectorKind connector = ConnectorKind::kAuto;
  /// Client: until when a name that cannot be looked up for now is looked up again; empty: as long as the default of
  /// TcpOptions::connect_timeout.
  std::optional<Deadline> find_by = {};
  int cancel_fd = -1;  ///< client: becomes readable to give that up; -1: none
};

/// Opens a device as sessions without a shared_device do: the one on the route to a client's server, or the one that
/// has the address at which a server listens, as far as `options` leave it open. For programs that need the device
/// before there is a session, to make buffers on it.
///
/// Returns  kInvalidArgument: a host that has no address; or as RDMADevice::open; for a client also as find_server
/// For a server, waits for the resolver without a deadline where the host is a name.
[[nodiscard]] Result<std::unique_ptr<RDMADevice>> open_device(const DeviceOptions& options, const OpenFor& purpose);

}  // namespace rdmacomm
