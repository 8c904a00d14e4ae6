#include "ping_pong/server.h"

#include <array>
#include <cstring>
#include <iostream>
#include <map>
#include <mutex>

#include "ping_pong/common.h"
#include "rdmacomm/session/server_session.h"
#include "support/peer_loss.h"
#include "support/sizes.h"

namespace rdmacomm::ping_pong {
namespace {

/// What one client needs of the server. Its memory goes after its endpoint.
struct Guest {
  Terms terms = {};
  std::shared_ptr<Memory> memory = nullptr;
};

class PingPongServer final : public programs::DeliveringSession<ServerSession> {
 public:
  PingPongServer(SessionOptions options, const AdapterConfig& adapter, const programs::ModeFlags& modes)
      : DeliveringSession(std::move(options)), adapter_(adapter), modes_(modes) {}

  /// The client's terms are known before there are queue pairs: the memory is made to fit them.
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    const auto terms = Terms::decode(peer.private_data);
    if (!terms) return terms.error();
    auto memory = Memory::create(*device(), *terms);
    if (!memory) return memory.error();
    for (ChannelConfig& channel : hca.channels) channel.adapter = adapter_;
    modes_.apply(hca);
    hca.publish((*memory)->buffer());
    const std::string device_text = device()->to_text();
    const auto bytes = std::as_bytes(std::span(device_text));
    hca.private_data.assign(bytes.begin(), bytes.end());
    const std::lock_guard lock(mutex_);
    guests_[peer.address] = {.terms = *terms, .memory = std::move(*memory)};
    return {};
  }

  /// The client's first message may come as soon as both sides are connected: a receive must wait for it.
  Status post_connecting(EndPoint& endpoint) override {
    const Guest guest = guest_of(endpoint);
    if (guest.memory == nullptr) return make_error(Errc::kWrongState, "no terms of " + endpoint.peer());
    const auto failed = endpoint.data()->post_recv(guest.memory->in(), 0);
    return failed ? Status(make_error(failed, "cannot post a receive")) : Status();
  }

  void on_connect_failed(const std::string& peer, const Error& why) override {
    ServerSession::on_connect_failed(peer, why);
    const std::lock_guard lock(mutex_);
    std::erase_if(guests_, [&](const auto& entry) { return peer.starts_with(entry.first); });
  }

  [[nodiscard]] Guest guest_of(const EndPoint& endpoint) {
    const std::lock_guard lock(mutex_);
    const auto found = guests_.find(endpoint.connector().peer_address());
    return found == guests_.end() ? Guest{} : found->second;
  }
  void forget(const EndPoint& endpoint) {
    delivery.forget(endpoint);
    const std::lock_guard lock(mutex_);
    guests_.erase(endpoint.connector().peer_address());
  }

 private:
  const AdapterConfig adapter_;
  const programs::ModeFlags modes_;
  std::mutex mutex_;
  std::map<std::string, Guest> guests_;  // by the address that their connection comes from
};

/// One client's game, from the server's side.
class ServerGame {
 public:
  ServerGame(EndPoint& endpoint, programs::Delivery& delivery, const Guest& guest)
      : endpoint_(endpoint),
        delivery_(delivery),
        channel_(*endpoint.data()),
        memory_(*guest.memory),
        terms_(guest.terms) {}

  Status play() {
    for (;;) {
      const auto question = endpoint_.receive_message(Deadline::after(kPatience));
      if (!question) return question.error();
      if (question->size() != 1) return make_error(Errc::kBadMessage, "a question of " + endpoint_.peer() + " is none");
      const auto step = static_cast<Step>(question->front());
      std::string wrong;
      if (Status seen = look(step, wrong); !seen.ok()) return seen;
      const auto answer = std::as_bytes(std::span(wrong));
      if (Status sent = endpoint_.send_message(answer, Deadline::after(kPatience)); !sent.ok()) return sent;
      if (step == Step::kAnswer) return ping_pong();
    }
  }

 private:
  /// Does this side's part of a step. `wrong` says what the client did not do right.
  /// Returns  an error where the server cannot go on
  Status look(Step step, std::string& wrong) {
    switch (step) {
      case Step::kSend: return take(step, Operation::kRecv, false, wrong);
      case Step::kSendImm: return take(step, Operation::kRecv, true, wrong);
      case Step::kWrite: note(check_pattern(memory_.in().bytes(), step), wrong); return {};
      case Step::kWriteImm: return take(step, Operation::kRecvWriteImm, true, wrong);
      case Step::kRead: return {};
      case Step::kFetchAdd: check_counter(kCounterStart + 5, wrong); return {};
      case Step::kCompareSwap: check_counter(kCounterStart, wrong); return {};
      case Step::kAnswer: return answer(step);
    }
    return make_error(Errc::kBadMessage, endpoint_.peer() + " asks for a step that there is not");
  }

  static void note(const Status& status, std::string& wrong) {
    if (!status.ok()) wrong = status.error().context;
  }
  void check_counter(std::uint64_t expected, std::string& wrong) const {
    std::uint64_t value = 0;
    std::memcpy(&value, memory_.counter().data(), sizeof(value));
    if (value != expected)
      wrong = "the counter is " + std::to_string(value) + " and should be " + std::to_string(expected);
  }
  /// A message must be there, of that kind; then the next receive is posted.
  Status take(Step step, Operation operation, bool immediate, std::string& wrong) {
    if (Status received = wait_for(delivery_, endpoint_, 1, done_); !received.ok()) return received;
    const Completion& completion = done_.front();
    if (completion.operation != operation || completion.bytes != terms_.size) {
      wrong =
          std::string("a ") + to_text(completion.operation) + " of " + std::to_string(completion.bytes) + " bytes came";
    } else if (completion.has_immediate != immediate || (immediate && completion.immediate != kImmediate)) {
      wrong = "the immediate data are wrong";
    } else {
      note(check_pattern(memory_.in().bytes(), step), wrong);
    }
    return post_receive();
  }
  Status post_receive() {
    const auto failed = channel_.post_recv(memory_.in(), 0);
    return failed ? Status(make_error(failed, "cannot post a receive")) : Status();
  }
  Status answer(Step step) {
    fill_for(memory_.out().bytes(), step);
    if (const auto failed = channel_.post_send(memory_.out(), 1))
      return make_error(failed, "cannot post to " + endpoint_.peer());
    return wait_for(delivery_, endpoint_, 1, done_);
  }

  Status ping_pong() {
    if (Status ready = endpoint_.sync_with_peer("ping-pong", Deadline::after(kPatience)); !ready.ok()) return ready;
    for (std::uint32_t i = 0; i < terms_.iterations; ++i) {
      if (Status asked = wait_for(delivery_, endpoint_, 1, done_); !asked.ok()) return asked;
      if (i + 1 < terms_.iterations) {
        if (Status posted = post_receive(); !posted.ok()) return posted;
      }
      if (const auto failed = channel_.post_send(memory_.out(), i, PostFlags::kUnsignaled)) {
        return make_error(failed, "cannot post to " + endpoint_.peer());
      }
    }
    return endpoint_.sync_with_peer("the end", Deadline::after(kPatience));
  }

  EndPoint& endpoint_;
  programs::Delivery& delivery_;
  RDMAChannel& channel_;
  Memory& memory_;
  const Terms terms_;
  std::vector<Completion> done_;
};

Status serve(PingPongServer& session, EndPoint& endpoint) {
  const Guest guest = session.guest_of(endpoint);
  Status outcome = programs::with_cause(endpoint, ServerGame(endpoint, session.delivery, guest).play());
  // The client is told why, unless it has gone before.
  if (!outcome.ok() && endpoint.alive()) endpoint.connector().refuse(outcome.error());
  Status closed = endpoint.close();
  session.forget(endpoint);
  return outcome.ok() ? closed : outcome;
}

}  // namespace

Status run_server(const ServerOptions& options) {
  const auto session =
      make_session<PingPongServer>(options.connection.session, options.connection.adapter, options.modes);
  if (Status started = session->start(); !started.ok()) return started;
  options.listening(session->port());
  for (;;) {
    const auto endpoint = session->wait_for_endpoint(Deadline::never());
    if (!endpoint) return endpoint.error();
    Status outcome = serve(*session, **endpoint);
    if (!options.connection.keep_serving) return outcome;
    if (outcome.ok()) {
      std::cout << "served " << (*endpoint)->peer() << std::endl;
    } else {
      std::cerr << programs::program_name() << ": " << outcome.message() << std::endl;
    }
  }
}

}  // namespace rdmacomm::ping_pong
