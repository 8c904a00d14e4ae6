#include "session/session_connectors.h"

#include "connector/cm/cm_connector.h"
#include "connector/cm/cm_listener.h"
#include "connector/tcp_connection.h"
#include "connector/tcp_listen_socket.h"

namespace rdmacomm {
namespace {

/// The kind to use: kCm or kTcp.
Result<ConnectorKind> kind_for(ConnectorKind asked, const DeviceCore& device) {
  if (asked == ConnectorKind::kTcp && device.needs_rdma_cm()) {
    return make_error(Errc::kNotSupported,
                      device.to_text() +
                          " is an iWARP device, whose queue pairs only rdma_cm connects: choose the "
                          "connector cm or auto");
  }
  if (asked == ConnectorKind::kCm && !device.known_to_rdma_cm()) {
    return make_error(Errc::kNotSupported,
                      device.to_text() + " is not known to rdma_cm: choose the connector tcp or auto");
  }
  if (asked == ConnectorKind::kAuto) return device.needs_rdma_cm() ? ConnectorKind::kCm : ConnectorKind::kTcp;
  return asked;
}

/// Converts a Result<unique_ptr<Derived>> to a Result<unique_ptr<Base>>.
template <typename Base, typename Made>
Result<std::unique_ptr<Base>> as(Made made) {
  if (!made) return made.error();
  return std::unique_ptr<Base>(std::move(*made));
}

}  // namespace

Result<std::unique_ptr<Connector>> connect_to(const HostPort& server, ConnectorKind connector, const TcpOptions& tcp,
                                              const DeviceCore& device, int cancel_fd) {
  const auto kind = kind_for(connector, device);
  if (!kind) return kind.error();
  if (*kind == ConnectorKind::kTcp) {
    return as<Connector>(TcpConnection::connect(server, tcp, cancel_fd));
  }
  return as<Connector>(CmConnector::connect(server, tcp, cancel_fd));
}

Result<std::unique_ptr<Listener>> listen_for(const SessionOptions& options, const DeviceCore& device,
                                             const FindBy& find_by) {
  const auto kind = kind_for(options.connector, device);
  if (!kind) return kind.error();
  if (*kind == ConnectorKind::kTcp) return as<Listener>(TcpListenSocket::listen(options.address, options.tcp, find_by));
  return as<Listener>(CmListener::listen(options.address, options.tcp, find_by));
}

}  // namespace rdmacomm
