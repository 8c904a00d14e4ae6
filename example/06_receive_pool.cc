// All clients share one set of receives: memory is needed for the messages in flight, not for a window per client.
// A hook reads the message in place; when it returns, the receive is posted again.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr std::size_t kMessageBytes = 64;

class Collector : public SessionHooks {
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
    hca.polling_mode = PollingMode::kAdaptive;
    hca.receive_pool_key = "messages";
    hca.receive_pool = {.depth = 32, .message_bytes = kMessageBytes, .low_water = 4};
    hca.channel(kDataChannel).pooled_receives = true;
    return {};
  }
  void on_recv_done(const EndPoint& client, const Completion& received) override {
    const auto message = client.receive_pool().message(received);
    bytes_ += message.size();
    ++messages_;
  }
  void on_receives_low(const ReceivePool& pool) override {
    std::cout << "only " + std::to_string(pool.posted()) + " receives are left\n" << std::flush;
  }
  void on_ended(const EndPoint&, const Status&) override {
    std::cout << std::to_string(messages_) + " messages so far, " + std::to_string(bytes_) + " bytes\n" << std::flush;
  }

  std::atomic<std::uint64_t> messages_{0};
  std::atomic<std::uint64_t> bytes_{0};
};

Status serve() {  // until it is interrupted
  const two_ends::Interrupt interrupt;
  ServerSession server({.address = {.port = 0}}, std::make_shared<Collector>());
  if (Status listening = two_ends::listen(server); !listening) return listening;
  interrupt.wait();
  return {};
}

Status send_messages(const HostPort& address) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto message = server ? RDMABuffer::allocate(session.device(), {.block_bytes = kMessageBytes}) : server.error();
  if (!message) return message.error();
  for (std::uint32_t i = 0; i < 100; ++i) {
    const auto sent = server->channel().send(message->at(0).first(i % kMessageBytes)).wait(10s);
    if (!sent) return sent.error();
  }
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, send_messages);
}
