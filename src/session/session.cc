#include "rdmacomm/session.h"

#include "session/session_core.h"

namespace rdmacomm {
namespace {

/// Calls the SessionFunctions as SessionHooks.
class FunctionHooks final : public SessionHooks {
 public:
  explicit FunctionHooks(SessionFunctions functions) : call_(std::move(functions)) {}

  [[nodiscard]] Status init_session(const RDMADevice& device) override {
    return call_.init_session ? call_.init_session(device) : Status();
  }
  [[nodiscard]] Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    return call_.lazy_config_hca ? call_.lazy_config_hca(hca, peer) : Status();
  }
  [[nodiscard]] Status post_connecting(const EndPoint& endpoint) override {
    return call_.post_connecting ? call_.post_connecting(endpoint) : Status();
  }
  void on_established(const EndPoint& endpoint) override {
    if (call_.on_established) call_.on_established(endpoint);
  }
  void on_completion(const EndPoint& endpoint, const Completion& completion) override {
    if (call_.on_completion) call_.on_completion(endpoint, completion);
  }
  void on_disconnected(const EndPoint& endpoint, const Status& why) override {
    if (call_.on_disconnected) call_.on_disconnected(endpoint, why);
  }
  void on_ended(const EndPoint& endpoint, const Status& why) override {
    if (call_.on_ended) call_.on_ended(endpoint, why);
  }
  void on_receives_low(const ReceivePool& pool) override {
    if (call_.on_receives_low) call_.on_receives_low(pool);
  }
  bool on_connect_failed(const std::string& peer, const Error& why) override {
    return call_.on_connect_failed && call_.on_connect_failed(peer, why);
  }

 private:
  const SessionFunctions call_;
};

}  // namespace

void SessionHooks::on_completion(const EndPoint& endpoint, const Completion& completion) {
  if (!completion.ok()) return on_failed(endpoint, completion);
  switch (completion.operation) {
    case Operation::kSend: return on_send_done(endpoint, completion);
    case Operation::kRecv: return on_recv_done(endpoint, completion);
    case Operation::kWrite:
    case Operation::kWriteImm: return on_write_done(endpoint, completion);
    case Operation::kRead: return on_read_done(endpoint, completion);
    case Operation::kFetchAdd:
    case Operation::kCompareSwap: return on_atomic_done(endpoint, completion);
    case Operation::kRecvWriteImm: return on_recv_write_imm_done(endpoint, completion);
  }
}

RDMASession::RDMASession(SessionOptions options, std::shared_ptr<SessionHooks> hooks, bool is_server) {
  if (!hooks) hooks = std::make_shared<SessionHooks>();
  // false, because it is not visible whether the class overrides on_completion().
  core_ = std::make_unique<SessionCore>(std::move(hooks), false, std::move(options), is_server);
}
RDMASession::RDMASession(SessionOptions options, SessionFunctions functions, bool is_server) {
  const bool wants_completions = functions.on_completion != nullptr;
  auto hooks = std::make_shared<FunctionHooks>(std::move(functions));
  core_ = std::make_unique<SessionCore>(std::move(hooks), wants_completions, std::move(options), is_server);
}
RDMASession::RDMASession(RDMASession&& other) noexcept = default;
RDMASession& RDMASession::operator=(RDMASession&& other) noexcept = default;
RDMASession::~RDMASession() = default;

SessionCore& RDMASession::core() const {
  if (!core_) detail::die_of_misuse("a session was used after it was moved from", nullptr);
  return *core_;
}

void RDMASession::stop() const {
  core().stop();
}
bool RDMASession::stopped() const {
  return core().stopped();
}
std::vector<EndPoint> RDMASession::endpoints() const {
  const auto all = core().endpoints();
  return {all.begin(), all.end()};
}
RDMADevice RDMASession::device() const {
  return core().device();
}
const SessionOptions& RDMASession::options() const {
  return core().options();
}

Status ServerSession::start() const {
  return core().start_server();
}
std::uint16_t ServerSession::port() const {
  return core().port();
}
Result<EndPoint> ServerSession::accept(Deadline deadline) const {
  auto endpoint = core().accept(deadline);
  if (!endpoint) return std::move(endpoint).error();
  return EndPoint(std::move(endpoint).value());
}
void ServerSession::end_handshake(const std::string& peer_address, const Error& why) const {
  core().end_handshake(peer_address, why);
}

Result<EndPoint> ClientSession::connect() const {
  return connect(core().options().address);
}
Result<EndPoint> ClientSession::connect(const HostPort& server) const {
  auto endpoint = core().connect(server);
  if (!endpoint) return std::move(endpoint).error();
  return EndPoint(std::move(endpoint).value());
}

}  // namespace rdmacomm
