// A WRITE with an immediate writes bytes to an address that the writer chooses, and gives 32 bits to the peer.
// Here the 32 bits say which slot of a table was written. They take a receive of the peer, which needs no memory.
#include <array>
#include <cstring>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

struct Reading {  // one slot of the table
  std::int64_t value = 0;
};
constexpr std::uint32_t kSlots = 8;

Status serve() {
  Result<RDMABuffer> table = RDMABuffer();
  const SessionFunctions hooks{
      .init_session =
          [&](const RDMADevice& device) {
            table = RDMABuffer::allocate(device, {.name = "table",
                                                  .block_bytes = sizeof(Reading),
                                                  .block_count = kSlots,
                                                  .remote_access = RemoteAccess::kWrite});
            return table.status();
          },
      .lazy_config_hca = [&](HcaConfig& hca, const PeerInfo&) { return hca.publish(*table), Status(); },
      .post_connecting = [&](const EndPoint& client) -> Status {
        for (std::uint32_t i = 0; i < kSlots; ++i) {
          if (Outcome posted = client.channel().post_recv({}); !posted) return posted;
        }
        return {};
      }};
  ServerSession server({.address = {.port = 0}}, hooks);
  if (Status listening = two_ends::listen(server); !listening) return listening;
  const auto client = server.accept(60s);
  if (!client) return client.error();
  for (;;) {
    const auto told = client->next(60s);
    if (told.code() == Errc::kPeerClosed) return {};
    if (Status ok = two_ends::outcome(told); !ok) return ok;
    const std::uint32_t slot = told->immediate;
    if (slot >= kSlots) return make_error(Errc::kBadMessage, "the client names a slot that does not exist");
    Reading reading;
    std::memcpy(&reading, table->at(slot).data(), sizeof(reading));
    std::cout << "slot " << slot << ": " << reading.value << std::endl;
    if (Outcome posted = client->channel().post_recv({}); !posted) return posted;
  }
}

Status write_squares(const HostPort& address) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto table = server ? server->remote_region("table") : server.error();
  const auto mine = table ? RDMABuffer::allocate(session.device(), {.block_bytes = sizeof(Reading)}) : table.error();
  if (!mine) return mine.error();
  for (const std::uint32_t slot : {3U, 1U, 7U}) {
    const auto theirs = table->slice(slot * sizeof(Reading), sizeof(Reading));
    if (!theirs) return theirs.error();
    const Reading reading{.value = slot * slot};
    std::memcpy(mine->data(), &reading, sizeof(reading));
    const auto written = server->channel().write(mine->at(0), *theirs, {.immediate = slot}).wait(10s);
    if (!written) return written.error();
  }
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, write_squares);
}
