#include "ping_pong/client.h"

#include <array>
#include <cstring>
#include <iomanip>
#include <iostream>

#include "base/printable.h"
#include "ping_pong/common.h"
#include "rdmacomm/session.h"
#include "support/peer_loss.h"
#include "support/sizes.h"
#include "support/statistics.h"
#include "support/table.h"
#include "support/tick_clock.h"

namespace rdmacomm::ping_pong {
namespace {

class PingPongClient final : public programs::DeliveringHooks {
 public:
  PingPongClient(const AdapterConfig& adapter, const programs::ModeFlags& modes, const Terms& terms,
                 const Memory& memory)
      : adapter_(adapter), modes_(modes), terms_(terms), memory_(memory) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& /*peer*/) override {
    for (ChannelConfig& channel : hca.channels) channel.adapter = adapter_;
    modes_.apply(hca);
    hca.publish(memory_.buffer());
    hca.private_data = terms_.encode();
    return {};
  }

 private:
  const AdapterConfig adapter_;
  const programs::ModeFlags modes_;
  const Terms terms_;
  const Memory& memory_;
};

/// One connection to a server, and the steps of the test on it.
class ClientGame {
 public:
  ClientGame(const EndPoint& endpoint, Memory& memory, const Terms& terms)
      : endpoint_(endpoint), channel_(endpoint.channel()), memory_(memory), terms_(terms) {}

  Status play() {
    const auto theirs = endpoint_.remote_region(kBufferName);
    if (!theirs || theirs->length != memory_.buffer().size()) {
      return make_error(Errc::kIncompatiblePeer,
                        endpoint_.peer() + " has not published the memory that the test needs");
    }
    theirs_ = *theirs;
    describe();
    if (Status done = every_verb(); !done.ok()) return done;
    return programs::with_cause(endpoint_, ping_pong());
  }

 private:
  void describe() const {
    const auto device = endpoint_.peer_private_data();
    const std::string theirs(reinterpret_cast<const char*>(device.data()), device.size());
    std::cout << "client  " << programs::end_text(endpoint_.device().to_text(), channel_.address()) << '\n'
              << "server  "
              << programs::end_text(printable(theirs, 200), channel_.remote_address().value_or(QpAddress{}))
              << "\npath MTU " << channel_.path_mtu_bytes() << "\n"
              << std::endl;
  }

  Status every_verb() {
    struct Verb {
      const char* name;
      Step step;
      Status (ClientGame::*act)(Step);
    };
    static constexpr std::array<Verb, 8> kVerbs = {{
        {"SEND", Step::kSend, &ClientGame::send},
        {"SEND_WITH_IMM", Step::kSendImm, &ClientGame::send_imm},
        {"WRITE", Step::kWrite, &ClientGame::write},
        {"WRITE_WITH_IMM", Step::kWriteImm, &ClientGame::write_imm},
        {"READ", Step::kRead, &ClientGame::read},
        {"FETCH_ADD", Step::kFetchAdd, &ClientGame::fetch_add},
        {"COMPARE_SWAP", Step::kCompareSwap, &ClientGame::compare_swap},
        {"RECV", Step::kAnswer, &ClientGame::receive},
    }};
    for (const Verb& verb : kVerbs) {
      const DeviceLimits& limits = endpoint_.device().limits();
      const bool atomic = verb.step == Step::kFetchAdd || verb.step == Step::kCompareSwap;
      const bool immediate = verb.step == Step::kSendImm || verb.step == Step::kWriteImm;
      if ((atomic && !limits.atomics) || (immediate && !limits.immediate_data)) {
        std::cout << std::left << std::setw(16) << verb.name << "not supported by this device\n";
        continue;
      }
      if (Status done = programs::with_cause(endpoint_, (this->*verb.act)(verb.step)); !done.ok()) {
        return make_error(done.code(), std::string(verb.name) + ": " + done.error().context);
      }
      std::cout << std::left << std::setw(16) << verb.name << "ok, " << (atomic ? 8 : terms_.size) << " bytes verified"
                << std::endl;
    }
    return {};
  }

  Status send(Step step) {
    fill_for(memory_.out().bytes(), step);
    return finish(channel_.post_send(memory_.out(), {.id = 1}), step);
  }
  Status send_imm(Step step) {
    fill_for(memory_.out().bytes(), step);
    return finish(channel_.post_send(memory_.out(), {.id = 1, .immediate = kImmediate}), step);
  }
  Status write(Step step) {
    fill_for(memory_.out().bytes(), step);
    if (const Outcome posted = channel_.post_write(memory_.out(), memory_.their_in(theirs_), {.id = 1}); !posted) {
      return finish(posted, step);
    }
    if (Status complete = wait_for(endpoint_, 1, done_); !complete.ok()) return complete;
    // On iWARP that completion only means that the local memory may be reused. The answer to a READ comes after all
    // earlier WRITEs (RFC 5040, 5.5).
    return finish(channel_.post_read(memory_.counter(), memory_.their_counter(theirs_), {.id = 1}), step);
  }
  Status write_imm(Step step) {
    fill_for(memory_.out().bytes(), step);
    return finish(channel_.post_write(memory_.out(), memory_.their_in(theirs_), {.id = 1, .immediate = kImmediate}),
                  step);
  }
  Status read(Step step) {
    if (Status done = finish(channel_.post_read(memory_.in(), memory_.their_out(theirs_), {.id = 1}), step); !done.ok())
      return done;
    return check_pattern(memory_.in().bytes(), step);
  }
  Status fetch_add(Step step) {
    if (Status done = finish(
            channel_.post_fetch_add(memory_.counter(), memory_.their_counter(theirs_), {.addend = 5}, {.id = 1}), step);
        !done.ok()) {
      return done;
    }
    return check_counter(kCounterStart);
  }
  Status compare_swap(Step step) {
    const std::uint64_t expected = kCounterStart + 5;
    if (Status done = finish(channel_.post_compare_swap(memory_.counter(), memory_.their_counter(theirs_),
                                                        {.expected = expected, .desired = kCounterStart}, {.id = 1}),
                             step);
        !done.ok()) {
      return done;
    }
    return check_counter(expected);
  }
  /// Receives the server's answer to the next step.
  Status receive(Step step) {
    if (const Outcome posted = channel_.post_recv(memory_.in(), {.id = 2}); !posted) {
      return make_error(posted.code(), "cannot post a receive");
    }
    if (Status asked = ask(step); !asked.ok()) return asked;
    if (Status received = wait_for(endpoint_, 1, done_); !received.ok()) return received;
    if (done_.front().bytes != terms_.size) {
      return make_error(
          std::make_error_code(std::errc::io_error),
          std::to_string(done_.front().bytes) + " bytes arrived, " + std::to_string(terms_.size) + " were sent");
    }
    return check_pattern(memory_.in().bytes(), step);
  }

  /// Waits for the completion of the posted request, then asks the server for its result. `posted` is the outcome of
  /// posting.
  Status finish(Outcome posted, Step step) {
    if (!posted) return make_error(posted.code(), "cannot post to " + endpoint_.peer());
    if (Status complete = wait_for(endpoint_, 1, done_); !complete.ok()) return complete;
    return ask(step);
  }
  /// Tells the server which step was done. It answers with an empty message, or with a description of the error.
  Status ask(Step step) {
    const std::array<std::byte, 1> question = {static_cast<std::byte>(step)};
    if (Status sent = endpoint_.send_message(question, Deadline::after(kPatience)); !sent.ok()) return sent;
    const auto answer = endpoint_.receive_message(Deadline::after(kPatience));
    if (!answer) return answer.error();
    if (answer->empty()) return {};
    const std::string text(reinterpret_cast<const char*>(answer->data()), answer->size());
    return make_error(std::make_error_code(std::errc::io_error), "the server reports: " + printable(text, 500));
  }
  Status check_counter(std::uint64_t expected) const {
    std::uint64_t old = 0;
    std::memcpy(&old, memory_.counter().data(), sizeof(old));
    if (old == expected) return {};
    return make_error(std::make_error_code(std::errc::io_error), "the returned old value is " + std::to_string(old) +
                                                                     " and should be " + std::to_string(expected));
  }

  Status ping_pong() {
    const programs::TickClock clock;
    programs::Samples samples(terms_.iterations);
    for (std::uint32_t i = 0; i < terms_.iterations; ++i) {
      if (const Outcome posted = channel_.post_recv(memory_.in(), {.id = i}); !posted) {
        return make_error(posted.code(), "cannot post a receive");
      }
      if (i == 0) {
        // From here on the server answers each message at once.
        if (Status ready = endpoint_.sync_with_peer("ping-pong", Deadline::after(kPatience)); !ready.ok()) return ready;
      }
      const std::uint64_t before = clock.now();
      const Outcome posted = channel_.post_send(memory_.out(), {.id = i, .flags = PostFlags::kUnsignaled});
      if (!posted) return make_error(posted.code(), "cannot post to " + endpoint_.peer());
      if (Status answered = wait_for(endpoint_, 1, done_); !answered.ok()) return answered;
      samples.add((clock.now() - before) / 2);
    }
    const programs::Summary us = samples.summarize().scaled(clock.ns_per_tick() / 1000);
    std::cout << "\nping-pong of " << programs::size_text(terms_.size) << " bytes by SEND, " << us.count
              << " round trips; half of a round trip in us:\n";
    const programs::Table table({{"min", 9}, {"p50", 9}, {"p99", 9}, {"p99.9", 9}, {"max", 9}, {"mean", 9}});
    table.print_header(std::cout);
    using programs::number_text;
    table.print_row(std::cout, {number_text(us.min), number_text(us.p50), us.has_p99() ? number_text(us.p99) : "-",
                                us.has_p999() ? number_text(us.p999) : "-", number_text(us.max), number_text(us.mean)});
    return endpoint_.sync_with_peer("the end", Deadline::after(kPatience));
  }

  const EndPoint& endpoint_;
  RDMAChannel& channel_;
  Memory& memory_;
  const Terms terms_;
  RemoteRegion theirs_;
  std::vector<Completion> done_;
};

}  // namespace

Status run_client(const programs::ConnectionFlags& connection, const Terms& terms, const programs::ModeFlags& modes) {
  auto opened =
      open_device(connection.session.device, {.address = connection.session.address,
                                              .connector = connection.session.connector,
                                              .find_by = Deadline::after(connection.session.tcp.connect_timeout)});
  if (!opened) return opened.error();
  const RDMADevice device = std::move(*opened);
  if (terms.size > device.limits().max_message_bytes) {
    return make_error(Errc::kBeyondDeviceLimit, "--size: a message of " + programs::size_text(terms.size) +
                                                    " bytes is too large: the limit of " + device.to_text() + " is " +
                                                    programs::size_text(device.limits().max_message_bytes) + " bytes");
  }
  const auto memory = Memory::create(device, terms);
  if (!memory) return memory.error();
  SessionOptions options = connection.session;
  options.shared_device = device;
  const ClientSession session(options, std::make_shared<PingPongClient>(connection.adapter, modes, terms, **memory));
  const auto endpoint = session.connect();
  if (!endpoint) return endpoint.error();
  Status outcome = ClientGame(*endpoint, **memory, terms).play();
  Status closed = endpoint->close();
  return outcome.ok() ? closed : outcome;
}

}  // namespace rdmacomm::ping_pong
