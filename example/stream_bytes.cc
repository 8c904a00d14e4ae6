#include <iostream>
#include <thread>

#include "rdmacomm/rdmacomm.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr StreamOptions kOptions{.block_bytes = 64 << 10};

Status add_channel(HcaConfig& hca, const PeerInfo& /*peer*/) {  // on both sides
  hca.channels = {kOptions.channel("pipe")};
  return {};
}

Status copy_in(const EndPoint& endpoint) {  // from standard input, which it reads into registered memory
  auto stream = RDMAStream::open(endpoint, endpoint.channel("pipe"), kOptions, 20s);
  if (!stream) return stream.error();
  while (std::cin) {
    const auto room = stream->lend(20s);
    if (!room) return room.error();
    std::cin.read(reinterpret_cast<char*>(room->data()), static_cast<std::streamsize>(room->size()));
    if (Status written = stream->commit(static_cast<std::size_t>(std::cin.gcount())); !written) return written;
  }
  return stream->finish(20s);  // ok: the other side has taken everything
}

Status copy_out(const EndPoint& endpoint) {  // to standard output, out of registered memory
  auto stream = RDMAStream::open(endpoint, endpoint.channel("pipe"), kOptions, 20s);
  if (!stream) return stream.error();
  for (;;) {
    const auto block = stream->next(20s);
    if (!block) return block.error();
    if (!*block) return {};  // the end
    std::cout.write(reinterpret_cast<const char*>(block->bytes().data()), static_cast<std::streamsize>(block->size()));
    if (!std::cout.flush()) stream->abort("standard output is closed");
  }
}

int main() {  // both ends in one process, so that it runs by itself
  ServerSession server({.address = {.host = "127.0.0.1", .port = 0}}, {.lazy_config_hca = add_channel});
  if (!server.start()) return 1;
  ClientSession client({.address = {.host = "127.0.0.1", .port = server.port()}}, {.lazy_config_hca = add_channel});
  const auto near = client.connect();
  const auto far = server.accept(20s);
  if (!near || !far) return 1;
  Status out;
  std::thread other([&] { out = copy_out(*far); });
  const Status in = copy_in(*near);
  other.join();
  for (const Status& status : {in, out}) {
    if (!status) std::cerr << status.message() << '\n';
  }
  return in && out ? 0 : 1;
}
