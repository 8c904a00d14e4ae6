// A SEND fills the next receive that the peer has posted. Each receive takes one whole message.
// The receives come first: the server posts them before the client may send, and posts each again once it is read.
#include <string>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr std::size_t kReceives = 4;

Status serve() {
  Result<RDMABuffer> inbox = RDMABuffer();
  const SessionFunctions hooks{.init_session =
                                   [&](const RDMADevice& device) {
                                     inbox = RDMABuffer::allocate(device, {.block_count = kReceives});
                                     return inbox.status();
                                   },
                               .post_connecting = [&](const EndPoint& client) -> Status {
                                 for (std::uint64_t block = 0; block < kReceives; ++block) {
                                   const Outcome posted = client.channel().post_recv(inbox->at(block), {.id = block});
                                   if (!posted) return posted;
                                 }
                                 return {};
                               }};
  ServerSession server({.address = {.port = 0}}, hooks);
  if (Status listening = two_ends::listen(server); !listening) return listening;
  const auto client = server.accept(60s);
  if (!client) return client.error();
  for (;;) {
    const auto received = client->next(60s);
    if (received.code() == Errc::kPeerClosed) return {};  // the client has disconnected in order
    if (Status ok = two_ends::outcome(received); !ok) return ok;
    const BufferSlice block = inbox->at(received->id);
    std::cout.write(reinterpret_cast<const char*>(block.data()), received->bytes) << std::endl;
    if (Outcome posted = client->channel().post_recv(block, {.id = received->id}); !posted) return posted;
  }
}

Status send_lines(const HostPort& address) {  // those of standard input
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto outbox = server ? RDMABuffer::allocate(session.device(), {}) : server.error();
  if (!outbox) return outbox.error();
  for (std::string line; std::getline(std::cin, line);) {
    if (line.size() > outbox->size()) return make_error(Errc::kInvalidArgument, "a line is longer than a block");
    const auto bytes = static_cast<std::uint32_t>(line.copy(reinterpret_cast<char*>(outbox->data()), outbox->size()));
    const auto sent = server->channel().send(outbox->at(0).first(bytes)).wait(10s);
    if (!sent) return sent.error();
  }
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, send_lines);
}
