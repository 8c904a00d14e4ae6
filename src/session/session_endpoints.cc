// SessionCore: from a connection to an endpoint, and to the end of the endpoint.
#include "base/logging.h"
#include "base/out_of_memory.h"
#include "channel/completion_queue.h"
#include "connector/retry.h"
#include "session/session_connectors.h"
#include "session/session_core.h"
#include "session/stopped_error.h"

namespace rdmacomm {

class SessionCore::SetUpHost final : public EndPointHost {
 public:
  explicit SetUpHost(SessionCore& core) noexcept : core_(core) {}
  SetUpHost(const SetUpHost&) = delete;
  SetUpHost& operator=(const SetUpHost&) = delete;
  /// Frees the place, if no endpoint has taken it.
  ~SetUpHost() override { core_.registry_.give_up(admission_); }

  void comes_from(const std::string& address) { admission_.source = SourceNetwork::of(address); }
  [[nodiscard]] EndPointRegistry::Admission& admission() noexcept { return admission_; }

  [[nodiscard]] Status admit() override {
    if (Status healthy = core_.device()->events().health(); !healthy) return healthy;
    return core_.registry_.admit(admission_);
  }
  [[nodiscard]] Result<std::shared_ptr<CompletionQueue>> shared_queue(const HcaConfig& config) override {
    return core_.queues_.shared_queue(config);
  }
  [[nodiscard]] Result<std::shared_ptr<ReceivePoolCore>> receive_pool(const HcaConfig& config) override {
    return core_.queues_.receive_pool(config);
  }
  [[nodiscard]] std::shared_ptr<QueueServer> queue_server() override { return core_.queues_.queue_server(); }
  [[nodiscard]] Status enlist(const std::shared_ptr<EndPointCore>& endpoint) override {
    return core_.queues_.serve(endpoint);
  }

 private:
  SessionCore& core_;
  EndPointRegistry::Admission admission_;
};

EndPointSetup SessionCore::setup(SetUpHost& host) {
  return {.hooks = hooks_, .tcp = options_.tcp, .device = device(), .hello = hello_, .host = host};
}

// Client --------------------------------------------------------------------------------------------------------------

Result<std::shared_ptr<EndPointCore>> SessionCore::connect(const HostPort& server) {
  const Deadline reached_by = Deadline::after(options_.tcp.connect_timeout);  // one limit for all steps
  if (Status running = ensure_running(server, reached_by); !running) return running.error();
  const InsideThreads::Guard inside(inside_);
  RetryPause pause(reached_by, loop_.stop_fd());
  for (;;) {
    auto endpoint = or_out_of_memory([&] { return connect_once(server, reached_by); });
    // kServerBusy means that the server has no place at the moment, so the attempt is repeated until the deadline.
    if (endpoint || endpoint.code() != Errc::kServerBusy || pause.passed()) return endpoint;
    if (!pause.sleep()) return stopped_error();
  }
}

Result<std::shared_ptr<EndPointCore>> SessionCore::connect_once(const HostPort& server, Deadline reached_by) {
  /// A destructor, so that the handshake ends in every case: stop() waits for it.
  struct UnderWay {
    Handshakes& handshakes;
    const Id id;
    ~UnderWay() { handshakes.end(id); }
  };
  const auto id = handshakes_.begin();
  if (!id) return id.error();
  const UnderWay under_way{handshakes_, *id};
  TcpOptions tcp = options_.tcp;
  tcp.connect_timeout = time_left(reached_by);
  auto connector = connect_to(server, options_.connector, tcp, *device(), loop_.stop_fd());
  if (!connector) return connector.error();
  return set_up_client(*id, std::move(*connector));
}

Result<std::shared_ptr<EndPointCore>> SessionCore::set_up_client(Id id, const std::shared_ptr<Connector>& connector) {
  if (Status connected = handshakes_.connected(id, connector); !connected) return connected.error();
  SetUpHost host(*this);
  return or_out_of_memory([&]() -> Result<std::shared_ptr<EndPointCore>> {
    auto made = setup(host).as_client(connector);
    if (!made) return made;
    if (Status established = establish(id, *made, host); !established) return established.error();
    return made;
  });
}

// Server --------------------------------------------------------------------------------------------------------------

/// All code that a handshake of a peer can cause runs below this function. If memory runs out in it, only this
/// connection ends.
void SessionCore::set_up_server(Id id, const std::shared_ptr<Connector>& connector) {
  const InsideThreads::Guard inside(inside_);
  SetUpHost host(*this);
  const Status established = or_out_of_memory([&] {
    host.comes_from(connector->peer_address());
    auto endpoint = setup(host).as_server(connector);
    return endpoint ? establish(id, *endpoint, host) : endpoint.status();
  });
  if (established || stopped()) return;
  [[maybe_unused]] const Status reported = or_out_of_memory([&] {
    report_failed(connector->peer_text(), established.error());
    return Status();
  });
}

void SessionCore::end_handshake(const std::string& peer_address, const Error& why) {
  if (const auto connector = handshakes_.find(peer_address)) connector->give_up(why);
}

/// Reports that a connection did not become an endpoint.
void SessionCore::report_failed(const std::string& peer, const Error& why) {
  if (hooks_.on_connect_failed(peer, why)) return;
  const bool no_client = why.code == Errc::kBadMessage || why.code == Errc::kTimeout || why.code == Errc::kPeerLost ||
                         why.code == Errc::kPeerClosed;
  if (no_client) {
    RDMACOMM_VLOG(1) << "the handshake with " << peer << " failed: " << why.message();
  } else if (const auto others = refusal_pace_.due()) {
    RDMACOMM_LOG(WARNING) << "no endpoint for " << peer << ": " << why.message()
                          << (*others == 0 ? ""
                                           : "; and " + std::to_string(*others) + " more since the last such warning");
  }
}

// Client and server ---------------------------------------------------------------------------------------------------

/// Adds an endpoint to the lists, lets it go, and watches it, in that order. So on_disconnected can only follow
/// on_established, and finds the endpoint in the lists.
Status SessionCore::establish(Id handshake, const std::shared_ptr<EndPointCore>& endpoint, SetUpHost& host) {
  const auto entered = or_out_of_memory([&] {
    handshakes_.hand_over(handshake);  // first, because stop() ends either the handshake or the endpoint
    return registry_.enter(endpoint, host.admission());
  });
  if (!entered) {
    end_unestablished(hooks_, endpoint, true, entered.error());
    return entered.status();
  }
  const Id id = *entered;
  bool watched = false;
  const Status let_go = or_out_of_memory([&] { return let_go_of(id, endpoint, watched); });
  if (let_go) return let_go;
  if (!endpoint->was_established()) {
    registry_.forget(id);
    end_unestablished(hooks_, endpoint, true, let_go.error());
    return let_go;
  }
  endpoint->stop();
  const bool nobody_ends_it = !watched && endpoint->config().thread_mode == ThreadMode::kApplication;
  if (nobody_ends_it) end_endpoint(id, endpoint);
  return let_go;
}

/// watched  set to true when the control thread is responsible for its end
Status SessionCore::let_go_of(Id id, const std::shared_ptr<EndPointCore>& endpoint, bool& watched) {
  // From here on events of the device reach the endpoint. Earlier events did not, so check the device once.
  if (const Status healthy = device()->events().health(); !healthy) endpoint->fail(healthy.error());
  if (Status established = endpoint->mark_established(); !established) return established;
  RDMACOMM_VLOG(1) << "established with " << endpoint->peer();
  if (endpoint->config().thread_mode == ThreadMode::kApplication) hooks_.on_established(endpoint);
  if (Status watching = registry_.watch(id, *endpoint); !watching) return watching;
  watched = true;
  if (is_server_) registry_.offer(endpoint);
  return {};
}

// The end of an endpoint ----------------------------------------------------------------------------------------------

void SessionCore::end_if_over(Id id, const std::shared_ptr<EndPointCore>& endpoint) {
  if (endpoint->alive() || endpoint->config().thread_mode != ThreadMode::kApplication) return;
  end_endpoint(id, endpoint);
}

/// Ends an endpoint that no thread of a session serves.
void SessionCore::end_endpoint(Id id, const std::shared_ptr<EndPointCore>& endpoint) {
  registry_.forget(id);
  RDMACOMM_VLOG(1) << "ended: " << endpoint->peer();
  hooks_.on_disconnected(endpoint, endpoint->outcome());
}

/// Called by the thread that serves the endpoint.
void SessionCore::endpoint_ended(EndPointCore& endpoint) {
  if (const auto id = registry_.id_of(endpoint)) registry_.forget(*id);
  queues_.endpoint_ended(endpoint);
}

}  // namespace rdmacomm
