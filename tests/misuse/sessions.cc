// Classes derived from sessions, hooks that override nothing, and handles of the wrong type.
//
// DERIVED: final
// DERIVED_CLIENT: final
// DERIVED_BASE: private
// COPIED_SUBSCRIPTION: deleted|delete
// NO_HOOK: does not override|hides virtual member function
// POSITIONAL_FUNCTIONS: SessionFunctions|no matching|could not convert
// OTHER_HANDLE: RDMADevice
// COPIED_BUFFER: deleted|delete|private
#include "rdmacomm/rdmacomm.h"

using namespace rdmacomm;

#ifdef DERIVED
struct Server : ServerSession {
  using ServerSession::ServerSession;
};
#endif
#ifdef DERIVED_CLIENT
struct Client : ClientSession {
  using ClientSession::ClientSession;
};
#endif

#ifdef DERIVED_BASE
struct Session : RDMASession {
  Session() : RDMASession({}, SessionFunctions(), true) {}
};
#endif

struct Hooks : SessionHooks {
  Status lazy_config_hca(HcaConfig& /*hca*/, const PeerInfo& /*peer*/) override { return {}; }
#ifdef NO_HOOK
  void on_established(EndPoint& /*not const: another function*/) override {}
#endif
};

Status serve(const ProtectionDomain& domain) {
  const ServerSession with_hooks({}, std::make_shared<Hooks>());
  const ServerSession with_functions({}, {.on_established = [](const EndPoint&) {}});
#ifdef POSITIONAL_FUNCTIONS
  const ServerSession swapped({}, {[](const EndPoint&, const Completion&) {}});
#endif
  const ServerSession server;
  if (Status started = server.start(); !started) return started;
  auto buffer = RDMABuffer::allocate(server.device(), {});
  if (!buffer) return buffer.error();
#ifdef OTHER_HANDLE
  const auto adapter = RDMAAdapter::create(domain);
#endif
  const auto inside = RDMABuffer::allocate(domain, {});
  if (!inside) return inside.error();
#ifdef COPIED_SUBSCRIPTION
  const DeviceSubscription subscription;
  const DeviceSubscription copied_subscription = subscription;
#endif
#ifdef COPIED_BUFFER
  const RDMABuffer copied = *buffer;
#endif
  return {};
}
