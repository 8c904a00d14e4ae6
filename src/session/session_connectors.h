// session_connectors.h - creates the connector for a session's options and its device. Private to the layer.
#pragma once

#include <memory>

#include "connector/connector.h"
#include "connector/listener.h"
#include "connector/lookup.h"
#include "device/device_core.h"
#include "rdmacomm/session.h"

namespace rdmacomm {

/// Connects to `server` for endpoints on `device`.
/// Returns  kNotSupported: this connector does not work with this device; as TcpConnection::connect and
///          CmConnector::connect
[[nodiscard]] Result<std::unique_ptr<Connector>> connect_to(const HostPort& server, ConnectorKind connector,
                                                            const TcpOptions& tcp, const DeviceCore& device,
                                                            int cancel_fd);
/// Listens at options.address for endpoints on `device`.
/// Returns  kNotSupported, as above; as TcpListenSocket::listen and CmListener::listen
[[nodiscard]] Result<std::unique_ptr<Listener>> listen_for(const SessionOptions& options, const DeviceCore& device,
                                                           const FindBy& find_by);

}  // namespace rdmacomm
