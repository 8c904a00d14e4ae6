// session_connectors.h - the kind of connector that a session's options and its device ask for. Private to the layer.
#pragma once

#include <memory>

#include "rdmacomm/connector/connector.h"
#include "rdmacomm/connector/listener.h"
#include "rdmacomm/device/rdma_device.h"
#include "rdmacomm/session/session_options.h"

namespace rdmacomm {

/// Connects to `server` for endpoints on `device`.
/// Returns  kNotSupported: this device cannot be connected so; as TCPConnector::connect and CmConnector::connect
[[nodiscard]] Result<std::unique_ptr<Connector>> connect_to(const HostPort& server, ConnectorKind connector,
                                                            const TcpOptions& tcp, const RDMADevice& device,
                                                            int cancel_fd);
/// Listens at options.address for endpoints on `device`.
/// Returns  kNotSupported, as above; as TCPListener::listen and CmListener::listen
[[nodiscard]] Result<std::unique_ptr<Listener>> listen_for(const SessionOptions& options, const RDMADevice& device);

}  // namespace rdmacomm
