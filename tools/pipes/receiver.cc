#include "pipes/receiver.h"

#include <algorithm>
#include <iostream>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/wake_event.h"
#include "pipes/pipe_streams.h"
#include "pipes/standard_streams.h"
#include "rdmacomm/session.h"
#include "support/checksum.h"
#include "support/client_report.h"
#include "support/guest_places.h"
#include "support/host_pace.h"
#include "support/listening_text.h"
#include "support/peer_loss.h"
#include "support/program.h"
#include "support/progress.h"

namespace rdmacomm::pipes {
namespace {

/// While no data arrives: how often to check whether standard output still has a reader, and whether the next receivers
/// are alive.
constexpr std::chrono::milliseconds kLookAtReader{200};
/// How long a sender waits for the place of another one before it gets "try again later". Less than it waits for an
/// answer.
constexpr std::chrono::seconds kPlacePatience{5};
/// The time for the sender to receive the final verdict and disconnect.
constexpr std::chrono::seconds kVerdictTime{2};

Error reader_is_gone() {
  return make_error(std::make_error_code(std::errc::broken_pipe),
                    "the process that reads standard output has closed it");
}

/// Serves one sender. Until its first byte has arrived it may have to give way to others, which wait for its place.
/// After that all others are refused.
class SenderHooks final : public SessionHooks {
 public:
  /// wake  signalled when the sender's endpoint ends
  /// rest  as in ReceiverOptions
  SenderHooks(const PipeFlags& flags, const WakeEvent& wake, std::chrono::milliseconds rest)
      : places_({.guests = 1, .rest = rest}), flags_(flags), wake_(wake) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    const auto terms = Terms::decode(peer.private_data);
    if (!terms) return terms.error();
    auto guest = places_.admit(peer.address, 0, Deadline::after(kPlacePatience));
    if (!guest) return refusal(guest.error());
    const std::lock_guard lock(mutex_);
    sender_ = Sender{.address = peer.address, .guest = std::move(*guest), .terms = *terms};
    flags_.modes.apply(hca);
    hca.channels = {pipe_channel(receiver_stream(*terms), flags_.connection.adapter)};
    return {};
  }
  /// From here on a sender can be dismissed, even if it does not finish the handshake.
  Status post_connecting(const EndPoint& endpoint) override {
    const std::lock_guard lock(mutex_);
    if (sender_.address != endpoint.peer_address()) {
      return make_error(Errc::kWrongState, "the terms of " + endpoint.peer() + " are not known");
    }
    places_.set_dismissal(*sender_.guest, [this, weak = WeakEndPoint(endpoint)](const Error& why) {
      const EndPoint held = weak.lock();
      if (!held) return;
      gave_way(held.peer_address());
      held.abort(why);
    });
    return {};
  }
  /// A sender whose handshake failed gives its place to another one.
  bool on_connect_failed(const std::string& peer, const Error& /*why*/) override {
    remove_sender(peer.substr(0, peer.find(" (")));
    return false;
  }

  void on_disconnected(const EndPoint& endpoint, const Status& /*why*/) override {
    const std::lock_guard lock(mutex_);
    if (sender_.address == endpoint.peer_address()) wake_.signal();
  }
  /// Prints the name of a sender that has connected, with HostPace as the limit: anybody who can reach the port can
  /// connect.
  void name(const EndPoint& sender) {
    if (!flags_.verbose) return;
    const auto line = names_.line(sender.peer(), name_text(sender), programs::HostPace::Clock::now());
    named_ = line.has_value();
    if (line) programs::say(*line);
  }
  /// The sender's first byte has arrived, so this run belongs to it. Its name is printed in any case, and all others
  /// are refused.
  /// Returns  kServerBusy: it was dismissed before
  Status take(const EndPoint& sender) {
    {
      const std::lock_guard lock(mutex_);
      if (!places_.keep(*sender_.guest))
        return make_error(Errc::kServerBusy, "its place was given to another sender that waits");
      sender_.taken = true;
      places_.close();
    }
    if (flags_.verbose && !named_) programs::say(name_text(sender));
    return {};
  }
  /// The sender has disconnected, and another one may take its place.
  void wait_for_another(const EndPoint& sender) { remove_sender(sender.peer_address()); }

  [[nodiscard]] Terms terms() {
    const std::lock_guard lock(mutex_);
    return sender_.terms;
  }
  /// Whether the sender was told to give way to another one.
  [[nodiscard]] bool has_given_way() {
    const std::lock_guard lock(mutex_);
    return sender_.gave_way;
  }

 private:
  static std::string name_text(const EndPoint& sender) { return "the sender is " + sender.peer(); }

  /// The sender that has the place.
  struct Sender {
    std::string address = {};
    std::shared_ptr<programs::Guest> guest = nullptr;
    Terms terms = {};
    bool taken = false;
    bool gave_way = false;
  };

  /// The error for a sender that finds the place taken. It tries again, unless another sender's data has arrived
  /// already.
  Error refusal(const Error& why) {
    const std::lock_guard lock(mutex_);
    if (why.code != Errc::kServerBusy) return why;
    if (sender_.taken) return make_error(Errc::kWrongState, "this rdma_recv already has a sender: " + sender_.address);
    return make_error(Errc::kServerBusy, "other senders already wait for this rdma_recv");
  }
  void gave_way(const std::string& address) {
    const std::lock_guard lock(mutex_);
    if (sender_.address == address) sender_.gave_way = true;
  }
  void remove_sender(const std::string& address) {
    {
      const std::lock_guard lock(mutex_);
      if (sender_.address == address) {
        sender_ = {};
        wake_.clear();
      }
    }
    places_.remove(address);
  }

  programs::GuestPlaces places_;
  const PipeFlags& flags_;
  const WakeEvent& wake_;
  programs::HostPace names_;  // this and the next: used only by the thread that waits for senders
  bool named_ = false;
  std::mutex mutex_;
  Sender sender_;
};

/// One run, from the first block to the verdict.
class Receiver {
 public:
  Receiver(const ReceiverOptions& options, const Terms& terms, RDMADevice device, EndPoint sender, RDMAStream stream,
           Output* output, const WakeEvent& wake, std::function<Status()> take_sender, Deadline begins_by)
      : options_(options),
        terms_(terms),
        sender_(std::move(sender)),
        stream_(std::move(stream)),
        output_(output),
        wake_(wake),
        take_sender_(std::move(take_sender)),
        begins_by_(begins_by),
        progress_({.out = std::cerr, .shown = options.flags.progress, .total = terms.size}),
        checked_(terms.checksum && output != nullptr),
        checksum_(checked_) {
    if (options.forward.empty()) return;
    // Half of the blocks of each sender stay free for the next data.
    outlets_.emplace(OutletsOptions{.connection = options.flags.connection,
                                    .modes = options.flags.modes,
                                    .terms = terms,
                                    .borrowed_blocks = std::max(1, terms.blocks / 2),
                                    .on_failure = options.flags.on_failure},
                     std::move(device),
                     Outlets::Callbacks{.over = [this](const Status& why) { over(why); },
                                        .say = [this](const std::string& line) { progress_.say(line); },
                                        .may_go_on = when_to_stop()});
  }

  /// Whether a byte has arrived, or the message that none will.
  [[nodiscard]] bool has_received() const noexcept { return begun_; }

  Status run() {
    const auto began = std::chrono::steady_clock::now();
    Status received = receive_all();
    if (received.ok()) received = conclude();
    if (!received.ok()) return give_up(std::move(received));
    if (options_.flags.stats) print_stats(began);
    return tell({});
  }

 private:
  /// If data is only passed on to one receiver, this thread has nothing else to do, so the outlet needs no thread.
  std::function<Status()> when_to_stop() {
    if (output_ || options_.forward.size() > 1) return {};
    return [this] { return sender_.alive() ? Status() : why_sender_ended(); };
  }

  /// A receiver to which data is passed on has failed, so the run is useless. From any thread.
  void over(const Status& why) {
    wake_.signal();
    stream_.abort("the receiver cannot send the data on: " + programs::reason_text(why));
  }

  /// The sender has sent something. Only now does this receiver connect to the next receivers. A client that sends
  /// nothing, which may be anybody who can reach the port, must not end their runs.
  Status begin() {
    if (begun_) return {};
    if (Status taken = take_sender_(); !taken.ok()) return taken;
    begun_ = true;
    return outlets_ ? outlets_->connect(options_.forward) : Status();
  }

  Status receive_all() {
    for (;;) {
      auto block = stream_.next(Deadline::after(kLookAtReader));
      if (!block && block.code() != Errc::kTimeout) return programs::explained(sender_, block.status());
      if (!block && !begun_ && begins_by_.passed()) {
        return make_error(Errc::kTimeout, "the sender has sent nothing within --timeout");
      }
      if (!block) {
        if (outlets_) outlets_->look();
        if (!output_ || !output_->reader_is_gone()) continue;
        return reader_is_gone();
      }
      if (!*block) return {};
      if (Status taken = take(std::move(*block)); !taken.ok()) return taken;
    }
  }

  Status take(StreamBlock block) {
    if (Status begun = begin(); !begun.ok()) return begun;
    const auto shared = std::make_shared<const StreamBlock>(std::move(block));
    if (outlets_) outlets_->push(shared->slice(), shared);
    checksum_.update(shared->bytes());
    progress_.add(shared->size());
    return output_ ? output_->write(shared->bytes()) : Status();
  }

  /// All data has arrived. Checks that it is correct and written, and that the next receivers have it.
  Status conclude() {
    const auto message = sender_.receive_message(begun_ ? Deadline::never() : begins_by_);
    if (!message) return programs::explained(sender_, message.status());
    const auto total = Total::decode(*message);
    if (!total) return total.error();
    if (Status begun = begin(); !begun.ok()) return begun;
    if (total->bytes != progress_.bytes()) {
      return make_error(
          std::make_error_code(std::errc::io_error),
          std::to_string(progress_.bytes()) + " of " + std::to_string(total->bytes) + " bytes have arrived");
    }
    if (checked_ && total->checksum != checksum_.value()) {
      return make_error(std::make_error_code(std::errc::io_error),
                        "the received data is not the data that was sent: the checksums differ");
    }
    if (outlets_) {
      if (Status passed_on = outlets_->finish(*total); !passed_on.ok()) return passed_on;
    }
    return output_ ? output_->finish() : Status();
  }

  Status give_up(Status why) {
    const Status passed_on = outlets_ ? outlets_->status() : Status();
    if (!passed_on.ok()) {
      why = passed_on;
    } else if (why.code() == Errc::kStopped) {
      why = why_sender_ended();
    }
    if (outlets_) outlets_->abort(programs::reason_text(why));
    if (sender_.alive()) (void)tell(why);
    stream_.abort(programs::reason_text(why));
    return why;
  }

  /// The sender's reason follows the blocks that are still in the stream, so these are skipped.
  Status why_sender_ended() {
    for (;;) {
      const auto block = stream_.next(Deadline::after({}));
      if (!block && block.code() != Errc::kTimeout) return programs::explained(sender_, block.status());
      if (!block || !*block) return sender_.status();
    }
  }

  /// Sends the verdict to the sender. If all is well, the sender then disconnects.
  Status tell(const Status& outcome) {
    const Verdict verdict = outcome.ok() ? Verdict{} : Verdict{.failure = programs::reason_text(outcome)};
    Status told = sender_.send_message(verdict.encode(), Deadline::after(kVerdictTime));
    if (!told.ok()) {
      return make_error(told.code(), "all data is written, but the sender could not be told: " + told.error().context);
    }
    if (outcome.ok()) (void)sender_.receive_message(Deadline::after(kVerdictTime));
    return {};
  }

  void print_stats(std::chrono::steady_clock::time_point began) {
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count();
    const programs::ProcessorTime used = programs::processor_time();
    progress_.say(
        programs::stats_text(progress_.bytes(), seconds, used.user_seconds, used.system_seconds, checksum_.value()));
  }

  const ReceiverOptions& options_;
  const Terms terms_;
  const EndPoint sender_;
  RDMAStream stream_;
  Output* const output_;
  const WakeEvent& wake_;
  const std::function<Status()> take_sender_;
  const Deadline begins_by_;  // the deadline of the first byte
  programs::Progress progress_;
  // Not if this receiver only passes data on: the receivers after it check the data at the end of the way.
  const bool checked_;
  bool begun_ = false;
  programs::Checksum checksum_;
  std::optional<Outlets> outlets_;  // its threads use all members above
};

/// Waits until the end of --timeout, or until nobody reads standard output any more.
Result<EndPoint> wait_for_sender(const ServerSession& session, std::optional<std::chrono::milliseconds> timeout,
                                 Deadline deadline, const std::optional<Output>& output) {
  for (;;) {
    auto sender = session.accept(Deadline::after(kLookAtReader).sooner(deadline));
    if (sender || sender.code() != Errc::kTimeout) return sender;
    if (output && output->reader_is_gone()) return reader_is_gone();
    if (!deadline.passed()) continue;
    std::ostringstream seconds;
    seconds << static_cast<double>(timeout->count()) / 1000;
    return make_error(Errc::kTimeout, "no sender has sent anything within --timeout=" + seconds.str() + " s");
  }
}

/// Whether a run without data has failed because of the sender. Not if the sender itself sent a reason, nor if
/// something was missing locally.
bool is_senders_fault(std::error_code code) {
  const auto faults = {Errc::kPeerLost,        Errc::kPeerClosed,       Errc::kTimeout,     Errc::kBadMessage,
                       Errc::kVersionMismatch, Errc::kIncompatiblePeer, Errc::kLocalLength, Errc::kFlushed,
                       Errc::kLocalQueuePair,  Errc::kServerBusy};
  return std::ranges::any_of(faults, [code](Errc fault) { return code == fault; });
}

/// begins_by  the deadline of its first byte
/// received   becomes true when something of this sender has arrived
Status receive_from(const EndPoint& sender, const ReceiverOptions& options, SenderHooks& hooks,
                    const RDMADevice& device, Output* output, const WakeEvent& wake, Deadline begins_by,
                    bool& received) {
  const Terms terms = hooks.terms();
  auto stream =
      RDMAStream::open(sender, sender.channel(kChannel), receiver_stream(terms),
                       Deadline::after(options.flags.connection.session.tcp.handshake_timeout).sooner(begins_by));
  if (!stream) return programs::explained(sender, stream.status());
  Receiver receiver(
      options, terms, device, sender, std::move(*stream), output, wake, [&] { return hooks.take(sender); }, begins_by);
  Status outcome = receiver.run();
  received = receiver.has_received();
  return outcome;
}

}  // namespace

Status run_receiver(const ReceiverOptions& options) {
  if (Status open = check_open(options.output_fd, "standard output"); !open.ok()) return open;
  const auto wake = WakeEvent::create();
  if (!wake) return wake.error();
  std::optional<Output> output;
  if (options.output) {
    auto opened = Output::open(options.output_fd, wake->fd(), options.sync);
    if (!opened) return opened.error();
    output.emplace(std::move(*opened));
  }
  const auto hooks = std::make_shared<SenderHooks>(options.flags, *wake, options.rest);
  const ServerSession session(options.flags.connection.session, hooks);
  if (Status started = session.start(); !started.ok()) return started;
  if (options.listening) options.listening(session.port());
  programs::say(programs::listening_text(options.flags.connection.session.address.host, session.port()));
  const Deadline deadline = options.timeout ? Deadline::after(*options.timeout) : Deadline::never();
  programs::ClientReport report;
  for (;;) {
    const auto sender = wait_for_sender(session, options.timeout, deadline, output);
    if (!sender) return sender.error();
    hooks->name(*sender);
    bool received = false;
    Status outcome = receive_from(*sender, options, *hooks, session.device(), output ? &*output : nullptr, *wake,
                                  deadline, received);
    if (received || !(is_senders_fault(outcome.code()) || hooks->has_given_way())) return outcome;
    report.failed((*sender).peer(),
                  (hooks->has_given_way() ? (*sender).peer() + " lost its place to another sender that waits"
                                          : programs::reason_text(outcome)) +
                      "; it had sent no data; waiting for the next sender");
    (void)(*sender).close();
    hooks->wait_for_another(*sender);
  }
}

}  // namespace rdmacomm::pipes
