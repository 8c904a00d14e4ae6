// A stream of bytes, through registered memory that is lent: the client's standard input becomes the server's standard
// output. Neither peer copies a byte, and no reader is overrun.
#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr StreamOptions kOptions{.block_bytes = 64 << 10};

Status add_channel(HcaConfig& hca, const PeerInfo&) {  // at both peers
  hca.channels = {kOptions.channel("pipe")};
  return {};
}

Status copy_out() {
  ServerSession server({.address = {.port = 0}}, {.lazy_config_hca = add_channel});
  if (Status listening = two_ends::listen(server, std::cerr); !listening) return listening;
  const auto client = server.accept(60s);
  if (!client) return client.error();
  auto stream = RDMAStream::open(*client, client->channel("pipe"), kOptions, 20s);
  if (!stream) return stream.error();
  for (;;) {
    const auto block = stream->next(60s);
    if (!block) return block.error();
    if (!*block) return stream->close(20s);  // the end
    std::cout.write(reinterpret_cast<const char*>(block->bytes().data()), static_cast<std::streamsize>(block->size()));
    if (!std::cout.flush()) stream->abort("standard output is closed");
  }
}

Status copy_in(const HostPort& address) {
  ClientSession session({.address = address}, {.lazy_config_hca = add_channel});
  const auto server = session.connect();
  auto stream = server ? RDMAStream::open(*server, server->channel("pipe"), kOptions, 20s) : server.error();
  if (!stream) return stream.error();
  while (std::cin) {
    const auto room = stream->lend(20s);
    if (!room) return room.error();
    std::cin.read(reinterpret_cast<char*>(room->data()), static_cast<std::streamsize>(room->size()));
    if (Status written = stream->commit(static_cast<std::size_t>(std::cin.gcount())); !written) return written;
  }
  return stream->close(20s);  // ok: the peer has taken everything
}

int main(int count, char** words) {
  return two_ends::run(count, words, copy_out, copy_in);
}
