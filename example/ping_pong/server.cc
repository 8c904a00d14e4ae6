#include "ping_pong/server.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <cstring>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <system_error>
#include <thread>
#include <type_traits>
#include <utility>

#include "ping_pong/common.h"
#include "rdmacomm/session.h"
#include "support/arrivals.h"
#include "support/client_domain.h"
#include "support/client_report.h"
#include "support/guest_places.h"
#include "support/peer_loss.h"
#include "support/sizes.h"

namespace rdmacomm::ping_pong {
namespace {

/// The longest time in which the server may see nothing of a client: one message each way is in flight.
std::chrono::milliseconds longest_pause(const Terms& terms) {
  return std::min<std::chrono::milliseconds>(kPatience, programs::time_on_slow_network(2 * terms.size));
}

/// The server's state of one client. Its memory is freed after its endpoint is closed.
struct Seat {
  Terms terms = {};
  std::shared_ptr<programs::Guest> guest = nullptr;
  std::shared_ptr<Memory> memory = nullptr;
};

class PingPongServer final : public programs::DeliveringHooks {
 public:
  /// Clients are served at the same time, so an idle client does not delay the others.
  explicit PingPongServer(const ServerOptions& options)
      : places_({.guests = ServerOptions::kGuests,
                 .guests_of_a_host = ServerOptions::kGuestsOfAHost,
                 .shared_bytes = ServerOptions::kSharedBytes,
                 .rest = options.rest,
                 .turn = options.turn}),
        place_patience_(options.place_patience),
        adapter_(options.connection.adapter),
        modes_(options.modes) {}

  Status init_session(const RDMADevice& device) override {
    device_ = device;
    return {};
  }

  /// The client's terms are known before queue pairs exist, so the memory can have the right size.
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    const auto terms = Terms::decode(peer.private_data);
    if (!terms) return terms.error();
    auto guest = places_.admit(peer.address, Memory::bytes_for(*terms), Deadline::after(place_patience_));
    if (!guest) return guest.error();
    (*guest)->set_pause(longest_pause(*terms));
    const Status apart = programs::give_own_domain(hca, device_);
    auto memory = apart.ok() ? Memory::create(device_, *terms, hca.domain) : apart.error();
    if (!memory) {
      places_.remove(peer.address);
      return memory.error();
    }
    for (ChannelConfig& channel : hca.channels) channel.adapter = adapter_;
    modes_.apply(hca);
    hca.publish((*memory)->buffer());
    const std::string device_text = device_.to_text();
    const auto bytes = std::as_bytes(std::span(device_text));
    hca.private_data.assign(bytes.begin(), bytes.end());
    const std::lock_guard lock(mutex_);
    seats_[peer.address] = {.terms = *terms, .guest = std::move(*guest), .memory = std::move(*memory)};
    return {};
  }

  /// The client's first message may arrive as soon as both peers are connected, so a receive must be posted before
  /// that.
  Status post_connecting(const EndPoint& endpoint) override {
    if (Status ready = DeliveringHooks::post_connecting(endpoint); !ready) return ready;
    const Seat seat = seat_of(endpoint);
    if (seat.memory == nullptr)
      return make_error(Errc::kWrongState, "the terms of " + endpoint.peer() + " are not known");
    places_.set_dismissal(*seat.guest, [weak = WeakEndPoint(endpoint)](const Error& why) {
      if (const EndPoint held = weak.lock()) held.abort(why);
    });
    const Outcome posted = endpoint.channel().post_recv(seat.memory->in());
    return posted ? Status() : make_error(posted.code(), "cannot post a receive");
  }

  void on_established(const EndPoint& endpoint) override { arrivals.put(endpoint); }

  bool on_connect_failed(const std::string& peer, const Error& /*why*/) override {
    remove_client(peer.substr(0, peer.find(" (")));
    return false;
  }

  [[nodiscard]] Seat seat_of(const EndPoint& endpoint) {
    const std::lock_guard lock(mutex_);
    const auto found = seats_.find(endpoint.peer_address());
    return found == seats_.end() ? Seat{} : found->second;
  }
  void forget(const EndPoint& endpoint) { remove_client(endpoint.peer_address()); }
  /// As GuestPlaces::explained().
  [[nodiscard]] Status explained(const Seat& seat, Status outcome) const {
    return places_.explained(*seat.guest, std::move(outcome));
  }
  /// Refuses all clients that wait for a place.
  void close_places() { places_.close(); }

  programs::Arrivals arrivals;

 private:
  /// The place is free once the memory is freed.
  void remove_client(const std::string& address) {
    std::optional<Seat> seat;
    {
      const std::lock_guard lock(mutex_);
      if (const auto found = seats_.extract(address)) seat = std::move(found.mapped());
    }
    seat.reset();
    places_.remove(address);
  }

  RDMADevice device_;
  programs::GuestPlaces places_;
  const std::chrono::milliseconds place_patience_;
  const AdapterConfig adapter_;
  const programs::ModeFlags modes_;
  std::mutex mutex_;
  std::map<std::string, Seat> seats_;  // by the address of the connection
};

/// The server's half of one client's test.
class ServerGame {
 public:
  ServerGame(const EndPoint& endpoint, const Seat& seat)
      : endpoint_(endpoint),
        channel_(endpoint.channel()),
        memory_(*seat.memory),
        guest_(*seat.guest),
        terms_(seat.terms) {}

  Status play() {
    for (;;) {
      const auto question = with_client([&] { return endpoint_.receive_message(Deadline::after(kPatience)); });
      if (!question) return question.error();
      if (question->size() != 1)
        return make_error(Errc::kBadMessage, endpoint_.peer() + " has sent a question that is not 1 byte long");
      const auto step = static_cast<Step>(question->front());
      if (!is_new(step)) return make_error(Errc::kBadMessage, endpoint_.peer() + " asks for the same step again");
      if (!std::exchange(asked_, true)) memory_.fill_for_peer();
      std::string wrong;
      if (Status seen = look(step, wrong); !seen.ok()) return seen;
      const auto answer = std::as_bytes(std::span(wrong));
      Status sent = with_client([&] { return endpoint_.send_message(answer, Deadline::after(kPatience)); });
      if (!sent.ok()) return sent;
      if (step == Step::kAnswer) return ping_pong();
    }
  }

  /// Whether the client has asked for a step.
  [[nodiscard]] bool asked() const noexcept { return asked_; }

 private:
  /// Runs a function that waits for the client. All other work is the server's own, during which the client does not
  /// count as idle.
  template <typename Wait>
  std::invoke_result_t<const Wait&> with_client(const Wait& wait) {
    guest_.set_working(false);
    auto result = wait();
    guest_.note_progress();
    guest_.set_working(true);
    return result;
  }
  Status wait_for_completion() {
    return with_client([&] { return wait_for(endpoint_, 1, done_); });
  }
  Status synchronize(std::string_view tag) {
    return with_client([&] { return endpoint_.sync_with_peer(tag, Deadline::after(kPatience)); });
  }
  /// Does the server's part of a step. `wrong` gets a description of an error that the client made.
  /// Returns  an error if the server cannot continue
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
    return make_error(Errc::kBadMessage, endpoint_.peer() + " asks for an unknown step");
  }

  /// A run has each step once, so a client cannot continue for ever.
  bool is_new(Step step) noexcept {
    const std::uint64_t bit = std::uint64_t{1} << (static_cast<unsigned>(step) % 64);
    return (std::exchange(steps_, steps_ | bit) & bit) == 0;
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
  /// Checks that a message of that kind has arrived, then posts the next receive.
  Status take(Step step, Operation operation, bool immediate, std::string& wrong) {
    if (Status received = wait_for_completion(); !received.ok()) return received;
    const Completion& completion = done_.front();
    if (completion.operation != operation || completion.bytes != terms_.size) {
      wrong = std::string("a ") + to_text(completion.operation) + " of " + std::to_string(completion.bytes) +
              " bytes arrived";
    } else if (completion.has_immediate != immediate || (immediate && completion.immediate != kImmediate)) {
      wrong = "the immediate data are wrong";
    } else {
      note(check_pattern(memory_.in().bytes(), step), wrong);
    }
    return post_receive();
  }
  Status post_receive() {
    const Outcome posted = channel_.post_recv(memory_.in());
    return posted ? Status() : make_error(posted.code(), "cannot post a receive");
  }
  Status answer(Step step) {
    fill_for(memory_.out().bytes(), step);
    const Outcome posted = channel_.post_send(memory_.out(), {.id = 1});
    if (!posted) return make_error(posted.code(), "cannot post to " + endpoint_.peer());
    return wait_for_completion();
  }

  Status ping_pong() {
    if (Status ready = synchronize("ping-pong"); !ready.ok()) return ready;
    for (std::uint32_t i = 0; i < terms_.iterations; ++i) {
      if (Status asked = wait_for_completion(); !asked.ok()) return asked;
      if (i + 1 < terms_.iterations) {
        if (Status posted = post_receive(); !posted.ok()) return posted;
      }
      const Outcome posted = channel_.post_send(memory_.out(), {.id = i, .flags = PostFlags::kUnsignaled});
      if (!posted) return make_error(posted.code(), "cannot post to " + endpoint_.peer());
    }
    return synchronize("the end");
  }

  const EndPoint& endpoint_;
  RDMAChannel& channel_;
  Memory& memory_;
  programs::Guest& guest_;
  const Terms terms_;
  bool asked_ = false;
  std::uint64_t steps_ = 0;  // a bit for each requested step
  std::vector<Completion> done_;
};

/// The result of one run. A value.
struct Run {
  Status outcome = {};
  bool asked = false;  ///< the client has asked for a step; else this does not count as a run
};

Run serve(PingPongServer& session, const EndPoint& endpoint) {
  Run run;
  {
    const Seat seat = session.seat_of(endpoint);
    ServerGame game(endpoint, seat);
    run.outcome = session.explained(seat, programs::with_cause(endpoint, game.play()));
    run.asked = game.asked();
    // Sends the reason to the client, unless it has disconnected.
    if (!run.outcome.ok() && endpoint.alive()) endpoint.abort(run.outcome.error());
    Status closed = endpoint.close();
    if (run.outcome.ok()) run.outcome = closed;
  }
  session.forget(endpoint);
  return run;
}

/// The threads that serve clients, one for each, and their messages.
class Servers {
 public:
  Servers(PingPongServer& session, bool keep_serving) : session_(session), keep_serving_(keep_serving) {}
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;
  ~Servers() { join(); }

  void start(const EndPoint& endpoint) {
    threads_.remove_if([](Server& each) {
      if (!each.over.load()) return false;
      each.thread.join();
      return true;
    });
    Server& server = threads_.emplace_back();
    try {
      server.thread = std::thread([this, endpoint, &server] {
        finished(endpoint, serve(session_, endpoint));
        server.over.store(true);
      });
    } catch (const std::system_error& error) {  // no more threads for this user: other clients continue
      threads_.pop_back();
      report_.failed(endpoint.peer(), endpoint.peer() + " is not served: cannot start a thread: " + error.what());
      endpoint.abort(make_error(error.code(), "the server cannot start a thread"));
      (void)endpoint.close();
      session_.forget(endpoint);
    }
  }
  void join() {
    for (Server& each : threads_) each.thread.join();
    threads_.clear();
  }
  /// The outcome of the only run that was served.
  [[nodiscard]] Status outcome() {
    const std::lock_guard lock(mutex_);
    return outcome_.value_or(Status());
  }

 private:
  struct Server {
    std::thread thread = {};
    std::atomic<bool> over{false};
  };

  void finished(const EndPoint& endpoint, Run run) {
    const std::lock_guard lock(mutex_);
    if (outcome_) return;  // the server ends, and disconnects this client
    if (!keep_serving_ && run.asked) {
      outcome_ = std::move(run.outcome);
      session_.arrivals.stop();
    } else if (!run.outcome.ok()) {
      report_.failed(
          endpoint.peer(),
          run.outcome.message() + (keep_serving_ ? "" : "; it had not begun the test; waiting for the next client"));
    } else {
      report_.served(endpoint.peer());
    }
  }

  PingPongServer& session_;
  const bool keep_serving_;
  programs::ClientReport report_;
  std::list<Server> threads_;
  std::mutex mutex_;
  std::optional<Status> outcome_;
};

}  // namespace

Status run_server(const ServerOptions& options) {
  const auto hooks = std::make_shared<PingPongServer>(options);
  const ServerSession session(options.connection.session, hooks);
  if (Status started = session.start(); !started.ok()) return started;
  options.listening(session.port());
  Servers servers(*hooks, options.connection.keep_serving);
  while (const auto endpoint = hooks->arrivals.next()) {
    while (session.accept(Deadline::after({}))) {  // drains the list, which also contains served endpoints
    }
    servers.start(endpoint);
  }
  hooks->close_places();
  session.stop();
  servers.join();
  return servers.outcome();
}

}  // namespace rdmacomm::ping_pong
