#include <iostream>
#include <span>
#include <string_view>
#include <thread>

#include "rdmacomm/rdmacomm.h"
using namespace rdmacomm;

constexpr StreamOptions kOptions{.block_bytes = 64 << 10};

/// Both sides want the stream's channel.
template <typename Base>
struct Session : Base {
  using Base::Base;
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.channels = {kOptions.channel("pipe")};
    return {};
  }
};

Status copy_in(std::shared_ptr<EndPoint> endpoint) {  // from standard input, which it reads into registered memory
  const auto soon = Deadline::after(std::chrono::seconds(20));
  auto stream = RDMAStream::open(endpoint, *endpoint->channel("pipe"), kOptions, soon);
  if (!stream) return stream.error();
  while (std::cin) {
    const auto room = (*stream)->lend(soon);
    if (!room) return room.error();
    std::cin.read(reinterpret_cast<char*>(room->data()), static_cast<std::streamsize>(room->size()));
    const Status written = (*stream)->commit(static_cast<std::size_t>(std::cin.gcount()));
    if (!written) return written;
  }
  return (*stream)->finish(soon);  // ok: the other side has taken everything
}

Status copy_out(std::shared_ptr<EndPoint> endpoint) {  // to standard output, out of registered memory
  const auto soon = Deadline::after(std::chrono::seconds(20));
  auto stream = RDMAStream::open(endpoint, *endpoint->channel("pipe"), kOptions, soon);
  if (!stream) return stream.error();
  for (;;) {
    const auto block = (*stream)->next(soon);
    if (!block) return block.error();
    if (!*block) return {};  // the end
    std::cout.write(reinterpret_cast<const char*>(block->bytes().data()), static_cast<std::streamsize>(block->size()));
    if (!std::cout.flush()) (*stream)->abort("standard output is closed");
  }
}

int main() {  // both ends in one process, so that it runs by itself
  SessionOptions options;
  options.address = {.host = "127.0.0.1", .port = 0};
  auto server = make_session<Session<ServerSession>>(options);
  if (!server->start()) return 1;
  options.address.port = server->port();
  auto client = make_session<Session<ClientSession>>(options);
  const auto near = client->connect();
  const auto far = server->wait_for_endpoint(Deadline::after(std::chrono::seconds(20)));
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
