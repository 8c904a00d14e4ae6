// One peer, several channels. The second one is for bulk data, so that short messages do not wait for it; it is on
// another device if there is one. The third one is opened while the others are in use.
#include <array>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

/// Another device than the endpoint's; if there is none, the same one again, which works, too.
Result<RDMADevice> second_device(const RDMADevice& first) {
  for (const DeviceInfo& each : list_devices()) {
    if (each.name == first.name()) continue;
    if (auto opened = RDMADevice::open({.name = each.name}); opened) return opened;
  }
  return RDMADevice::open({.name = first.name()});
}

/// Both peers: the same channels by name. A channel on a device of its own has a completion queue of its own.
struct Ends {
  Status init_session(const RDMADevice& device) {
    second = second_device(device);
    return second.status();
  }
  Status lazy_config_hca(HcaConfig& hca) const {
    hca.channels = {{.name = "short"}, {.name = "bulk", .device = *second}};
    return {};
  }
  Result<RDMADevice> second = RDMADevice();
};

SessionFunctions hooks_of(Ends& ends) {
  return {.init_session = [&](const RDMADevice& device) { return ends.init_session(device); },
          .lazy_config_hca = [&](HcaConfig& hca, const PeerInfo&) { return ends.lazy_config_hca(hca); },
          .post_connecting = [](const EndPoint& peer) -> Status { return peer.channel("short").post_recv({}); }};
}

Status serve() {
  Ends ends;
  ServerSession server({.address = {.port = 0}}, hooks_of(ends));
  if (Status listening = two_ends::listen(server); !listening) return listening;
  const auto client = server.accept(60s);
  if (!client) return client.error();
  const auto block = RDMABuffer::allocate(client->channel("bulk").device(), {.block_bytes = 1 << 20});
  if (!block) return block.error();
  const PostedRequest bulk = client->channel("bulk").recv(block->at(0));
  if (Status met = client->sync_with_peer("the receive is posted", 20s); !met) return met;
  if (Status told = two_ends::outcome(client->next(20s)); !told) return told;
  std::cout << "a short message" << std::endl;
  const auto filled = bulk.wait(20s);
  if (!filled) return filled.error();
  std::cout << filled->bytes << " bytes on '" << filled->channel->name() << "'" << std::endl;
  const auto third = client->open_channel({.name = "third"}, 20s);
  return third ? client->sync_with_peer("third", 20s) : third.status();
}

Status send_both(const HostPort& address) {
  Ends ends;
  ClientSession session({.address = address}, hooks_of(ends));
  const auto server = session.connect();
  if (!server) return server.error();
  // Memory is registered on the device of the channel that uses it.
  const auto block = RDMABuffer::allocate(server->channel("bulk").device(), {.block_bytes = 1 << 20});
  if (!block) return block.error();
  if (Status met = server->sync_with_peer("the receive is posted", 20s); !met) return met;
  const PostedRequest bulk = server->channel("bulk").send(block->at(0));
  if (const auto sent = server->channel("short").send({}).wait(20s); !sent) return sent.error();
  if (const auto sent = bulk.wait(20s); !sent) return sent.error();
  const auto third = server->open_channel({.name = "third"}, 20s);
  return third ? server->sync_with_peer("third", 20s) : third.status();
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, send_both);
}
