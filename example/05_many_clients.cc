// An echo server for any number of clients. A thread of the session calls hooks on each event. The data that the hooks
// need for a client is stored as the context of its endpoint.
#include <cstring>
#include <memory>
#include <string>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr std::uint64_t kSlots = 4;  // messages of one client that may be in flight

class Echo : public SessionHooks {
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;  // one thread for all clients
    hca.polling_mode = PollingMode::kAdaptive;
    return {};
  }
  Status post_connecting(const EndPoint& client) override {
    auto slots = RDMABuffer::allocate(client.device(), {.block_count = kSlots});
    if (!slots) return slots.error();
    client.set_context(std::make_shared<RDMABuffer>(std::move(*slots)));
    for (std::uint64_t slot = 0; slot < kSlots; ++slot) {
      if (Outcome posted = post_receive(client, slot); !posted) return posted;
    }
    return {};
  }
  void on_recv_done(const EndPoint& client, const Completion& received) override {
    const BufferSlice message = client.context<RDMABuffer>()->at(received.id).first(received.bytes);
    if (!client.channel().post_send(message, {.id = received.id})) client.stop();
  }
  void on_send_done(const EndPoint& client, const Completion& sent) override {
    if (!post_receive(client, sent.id)) client.stop();
  }
  void on_disconnected(const EndPoint& client, const Status& why) override {
    std::cout << client.peer_address() + " has disconnected: " + why.message() + "\n" << std::flush;
  }
  static Outcome post_receive(const EndPoint& client, std::uint64_t slot) {
    return client.channel().post_recv(client.context<RDMABuffer>()->at(slot), {.id = slot});
  }
};

Status serve() {  // until it is interrupted
  const two_ends::Interrupt interrupt;
  ServerSession server({.address = {.port = 0}}, std::make_shared<Echo>());
  if (Status listening = two_ends::listen(server); !listening) return listening;
  interrupt.wait();
  return {};
}

Status ask(const HostPort& address) {  // sends the lines of standard input, and prints the answers
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto blocks = server ? RDMABuffer::allocate(session.device(), {.block_count = 2}) : server.error();
  if (!blocks) return blocks.error();
  RDMAChannel& channel = server->channel();
  for (std::string line; std::getline(std::cin, line);) {
    if (line.size() > 4096) return make_error(Errc::kInvalidArgument, "a line is longer than a block");
    const BufferSlice question = blocks->at(0).first(static_cast<std::uint32_t>(line.size()));
    std::memcpy(question.data(), line.data(), question.size());
    const PostedRequest answer = channel.recv(blocks->at(1));  // posted before the answer can arrive
    if (const auto sent = channel.send(question).wait(10s); !sent) return sent.error();
    const auto received = answer.wait(10s);
    if (!received) return received.error();
    std::cout.write(reinterpret_cast<const char*>(blocks->at(1).data()), received->bytes) << std::endl;
  }
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, ask);
}
