#include "connector/host_address.h"
#include "device/device_core.h"
#include "device/host_network.h"
#include "rdmacomm/session.h"

namespace rdmacomm {
namespace {

std::optional<PeerRoute> route_to(const HostAddress& server) {
  return find_route(HostNetwork::system(), server.gid, server.scope, server.text);
}

std::optional<PeerRoute> route_from(const HostAddress& listening) {
  if (listening.is_any()) return {};
  return PeerRoute{.source = listening.gid, .peer = listening.text, .of_clients = true, .interface = listening.scope};
}

ConnectBy connect_by(ConnectorKind connector) {
  switch (connector) {
    case ConnectorKind::kTcp: return ConnectBy::kAddresses;
    case ConnectorKind::kCm: return ConnectBy::kRdmaCm;
    case ConnectorKind::kAuto: break;
  }
  return ConnectBy::kEither;
}

Result<std::optional<PeerRoute>> find_route(const OpenFor& purpose) {
  if (purpose.address.host.empty()) return std::optional<PeerRoute>();
  const Deadline find_by = purpose.find_by.value_or(Deadline::after(TcpOptions{}.connect_timeout));
  const auto find = purpose.is_server ? find_addresses : find_server;
  const auto addresses = find(purpose.address, find_by, purpose.cancel_fd);
  if (!addresses) return addresses.error();
  for (const HostAddress& each : *addresses) {
    auto route = purpose.is_server ? route_from(each) : route_to(each);
    if (route) return route;
  }
  return std::optional<PeerRoute>();  // no route: connecting will report the error
}

}  // namespace

Result<RDMADevice> open_device(const DeviceOptions& options, const OpenFor& purpose) {
  auto route = find_route(purpose);
  if (!route) return route.error();
  auto core = DeviceCore::open(options, {.route = std::move(*route), .connect_by = connect_by(purpose.connector)});
  if (!core) return std::move(core).error();
  return RDMADevice(std::move(core).value());
}

}  // namespace rdmacomm
