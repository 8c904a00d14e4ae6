#include "pipes/outlets.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "pipes/direct_outlet.h"
#include "pipes/pipe_streams.h"
#include "pipes/queue_outlet.h"
#include "support/peer_loss.h"
#include "support/program.h"

namespace rdmacomm::pipes {
namespace {

std::string lost_another(const Status& why) {
  return "the sender has lost another receiver: " + programs::reason_text(why);
}

}  // namespace

class Outlets::Hooks final : public SessionHooks {
 public:
  explicit Hooks(Outlets& outlets) : outlets_(outlets) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& /*peer*/) override {
    const OutletsOptions& options = outlets_.options_;
    options.modes.apply(hca);
    hca.channels = {pipe_channel(sender_stream(options.terms, options.borrowed_blocks), options.connection.adapter)};
    hca.private_data = options.terms.encode();
    return {};
  }
  void on_disconnected(const EndPoint& /*endpoint*/, const Status& /*why*/) override { outlets_.on_disconnected(); }

 private:
  Outlets& outlets_;
};

Outlets::Outlets(OutletsOptions options, RDMADevice device, Callbacks callbacks)
    : options_(std::move(options)), callbacks_(std::move(callbacks)) {
  SessionOptions session = options_.connection.session;
  session.shared_device = std::move(device);
  session_.emplace(std::move(session), std::make_shared<Hooks>(*this));
}

Outlets::~Outlets() {
  abort("the sender has ended");
  std::vector<std::unique_ptr<Outlet>> gone;
  {
    const std::lock_guard lock(mutex_);
    gone.swap(outlets_);
  }
  gone.clear();  // while the session exists, because it sends their last messages
  session_.reset();
}

Status Outlets::connect(const std::vector<HostPort>& receivers) {
  asked_ = left_ = receivers.size();
  for (const HostPort& receiver : receivers) {
    const Status connected = connect_one(receiver);
    if (!connected.ok()) on_failure(receiver.to_text(), connected);
    const std::lock_guard lock(mutex_);
    if (over_) return failure_;
  }
  return {};
}

Status Outlets::connect_one(const HostPort& receiver) {
  const TcpOptions& tcp = options_.connection.session.tcp;
  const Deadline reached_by = Deadline::after(tcp.connect_timeout);
  EndPoint endpoint;
  std::optional<RDMAStream> stream;
  // A receiver that lets another sender go first has received nothing from this one, so connecting again loses nothing.
  for (;;) {
    auto connected = session_->connect(receiver);
    if (!connected) return connected.error();
    endpoint = std::move(*connected);
    auto opened =
        RDMAStream::open(endpoint, endpoint.channel(kChannel), sender_stream(options_.terms, options_.borrowed_blocks),
                         Deadline::after(tcp.handshake_timeout));
    if (opened) {
      stream = std::move(*opened);
      break;
    }
    const Status why = programs::explained(endpoint, opened.status());
    if (why.code() != Errc::kServerBusy || reached_by.passed()) return why;
    endpoint.stop();
  }
  auto failed = [this, receiver](const Outlet& outlet, const Status& why) { on_outlet_failure(outlet, receiver, why); };
  // Locked before the outlet checks whether its endpoint is alive. If the endpoint ends after that check,
  // on_disconnected() finds the outlet.
  const std::lock_guard lock(mutex_);
  std::unique_ptr<Outlet> outlet;
  if (callbacks_.may_go_on) {
    outlet = std::make_unique<DirectOutlet>(std::move(endpoint), std::move(*stream), std::move(failed),
                                            callbacks_.may_go_on);
  } else {
    try {
      outlet = std::make_unique<QueueOutlet>(std::move(endpoint), std::move(*stream), std::move(failed));
    } catch (const std::system_error& error) {
      return make_error(error.code(), "cannot start a thread for another receiver; see `ulimit -u`");
    }
  }
  outlets_.push_back(std::move(outlet));
  return {};
}

std::vector<HostPort> Outlets::begin_to_send() {
  if (sends_) return {};
  for (const auto& outlet : outlets_) outlet->look();
  std::vector<HostPort> receivers;
  std::vector<std::unique_ptr<Outlet>> ended;
  const std::lock_guard lock(mutex_);  // released before `ended`: the threads of those outlets may need it
  sends_ = true;
  if (over_) return {};
  for (GaveWay& each : gave_way_) {
    const auto found = std::ranges::find(outlets_, each.outlet, &std::unique_ptr<Outlet>::get);
    ended.push_back(std::move(*found));
    outlets_.erase(found);
    receivers.push_back(std::move(each.receiver));
  }
  gave_way_.clear();
  return receivers;
}

/// Serves the connected receivers first, because connecting to the others may take long, and a receiver without data
/// may let another sender go first.
void Outlets::give(const std::function<void(Outlet&)>& to) {
  const std::vector<HostPort> again = begin_to_send();
  for (const auto& outlet : outlets_) to(*outlet);
  for (const HostPort& receiver : again) {
    const Status connected = connect_one(receiver);
    if (!connected.ok()) on_failure(receiver.to_text(), connected);
    {
      const std::lock_guard lock(mutex_);
      // Another receiver has failed meanwhile, and this one has not been informed.
      if (over_ && connected.ok()) outlets_.back()->abort(lost_another(failure_));
      if (over_) return;
    }
    if (connected.ok()) to(*outlets_.back());
  }
}

void Outlets::on_outlet_failure(const Outlet& outlet, const HostPort& receiver, const Status& why) {
  const std::string peer = outlet.endpoint().peer();
  if (why.code() != Errc::kServerBusy) return on_failure(peer, why);
  {
    std::unique_lock lock(mutex_);
    if (sends_) {
      lock.unlock();
      return on_failure(peer, why);
    }
    gave_way_.push_back({&outlet, receiver});
  }
  callbacks_.say("receiver " + peer +
                 " serves another sender first; this sender connects to it again as soon as there is input");
}

void Outlets::on_failure(const std::string& who, const Status& why) {
  bool over = false;
  std::size_t left = 0;
  {
    const std::lock_guard lock(mutex_);
    if (failure_.ok()) failure_ = why;
    left = --left_;
    over = (left == 0 || options_.on_failure == OnFailure::kStop) && !std::exchange(over_, true);
  }
  if (over) {
    abort(lost_another(why));
    callbacks_.over(why);
  }
  if (options_.on_failure == OnFailure::kStop || left == 0) return;
  callbacks_.say("receiver " + who + " has failed, " + std::to_string(left) +
                 (left == 1 ? " receiver remains: " : " receivers remain: ") + programs::reason_text(why));
}

void Outlets::on_disconnected() {
  const std::lock_guard lock(mutex_);
  for (const auto& outlet : outlets_) outlet->endpoint_has_ended();
}

void Outlets::look() {
  for (const auto& outlet : outlets_) outlet->look();
}

std::vector<std::string> Outlets::peers() const {
  std::vector<std::string> all;
  for (const auto& outlet : outlets_) all.push_back(outlet->endpoint().peer());
  return all;
}

void Outlets::push(const BufferSlice& slice, const std::shared_ptr<const void>& keep) {
  give([&](Outlet& outlet) { outlet.push(slice, keep); });
}

Status Outlets::finish(const Total& total) {
  give([&](Outlet& outlet) { outlet.finish(total); });
  for (const auto& outlet : outlets_) (void)outlet->join();
  const std::lock_guard lock(mutex_);
  if (failure_.ok() || left_ == 0 || options_.on_failure == OnFailure::kStop) return failure_;
  return make_error(failure_.code(), std::to_string(asked_ - left_) + " of " + std::to_string(asked_) +
                                         " receivers did not get all data; the others did");
}

void Outlets::abort(const std::string& reason) {
  const std::lock_guard lock(mutex_);
  for (const auto& outlet : outlets_) outlet->abort(reason);
}

Status Outlets::status() {
  const std::lock_guard lock(mutex_);
  return failure_;
}

}  // namespace rdmacomm::pipes
