// lazy_config_hca() sets, for each new client, how its completions are awaited, and by which threads.
// The client's private data arrives with its request: here it selects the two modes.
#include <array>
#include <cstring>
#include <memory>
#include <string>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr std::array kPollingModes = {PollingMode::kBusyPoll, PollingMode::kCompletionChannel, PollingMode::kEpoll,
                                      PollingMode::kAdaptive};
constexpr std::array kThreadModes = {ThreadMode::kThreadPerChannel, ThreadMode::kThreadPerEndPoint,
                                     ThreadMode::kThreadPerCompletionQueue};

/// The client's choice: an index into each of the two lists.
struct Wish {
  std::uint8_t polling = 0;
  std::uint8_t threads = 0;
};

class AsWished : public SessionHooks {
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    Wish wish;
    if (peer.private_data.size() != sizeof(wish)) return make_error(Errc::kBadMessage, "the client has sent no wish");
    std::memcpy(&wish, peer.private_data.data(), sizeof(wish));
    if (wish.polling >= kPollingModes.size() || wish.threads >= kThreadModes.size()) {
      return make_error(Errc::kBadMessage, "the client requests a mode that does not exist");
    }
    hca.polling_mode = kPollingModes.at(wish.polling);
    hca.thread_mode = kThreadModes.at(wish.threads);
    hca.shared_queue_key = to_text(hca.polling_mode);  // clients with the same key are on one queue
    return {};
  }
  Status post_connecting(const EndPoint& client) override { return client.channel().post_recv({}); }
  void on_recv_done(const EndPoint& client, const Completion&) override {
    if (!client.channel().post_recv({}) || !client.channel().post_send({})) client.stop();
  }
  void on_ended(const EndPoint& client, const Status&) override {
    const bool slept = client.wait_counts().slept > 0;
    std::cout << std::string(to_text(client.config().polling_mode)) + (slept ? " has slept\n" : " has not slept\n")
              << std::flush;
  }
};

Status serve() {  // until it is interrupted
  const two_ends::Interrupt interrupt;
  ServerSession server({.address = {.port = 0}}, std::make_shared<AsWished>());
  if (Status listening = two_ends::listen(server); !listening) return listening;
  interrupt.wait();
  return {};
}

Status play(const HostPort& address, Wish wish) {
  const SessionFunctions hooks{.lazy_config_hca = [&](HcaConfig& hca, const PeerInfo&) {
    hca.polling_mode = kPollingModes.at(wish.polling);  // by its own thread, in wait()
    const auto bytes = std::as_bytes(std::span(&wish, 1));
    hca.private_data.assign(bytes.begin(), bytes.end());
    return Status();
  }};
  ClientSession session({.address = address}, hooks);
  const auto server = session.connect();
  if (!server) return server.error();
  for (int i = 0; i < 100; ++i) {
    const PostedRequest answer = server->channel().recv({});
    if (const auto sent = server->channel().send({}).wait(10s); !sent) return sent.error();
    if (const auto received = answer.wait(10s); !received) return received.error();
  }
  return {};
}

Status play_all(const HostPort& address) {
  for (std::uint8_t polling = 0; polling < kPollingModes.size(); ++polling) {
    for (std::uint8_t threads = 0; threads < kThreadModes.size(); ++threads) {
      if (Status played = play(address, {.polling = polling, .threads = threads}); !played) return played;
    }
  }
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, play_all);
}
