#include "rdmacomm/session/rdma_session.h"

#include "rdmacomm/session/client_session.h"
#include "rdmacomm/session/server_session.h"
#include "session/session_core.h"

namespace rdmacomm {

RDMASession::RDMASession(Role role, SessionOptions options)
    : core_(std::make_unique<SessionCore>(*this, std::move(options), role == Role::kServer)) {}

RDMASession::~RDMASession() = default;

void RDMASession::stop() {
  core_->stop();
}
void RDMASession::stop_at_end(const std::type_info& destroyed_as) {
  core_->check_stopped_before(destroyed_as);
  core_->stop();
}
bool RDMASession::stopped() const noexcept {
  return core_->stopped();
}
std::vector<std::shared_ptr<EndPoint>> RDMASession::endpoints() const {
  return core_->endpoints();
}
std::shared_ptr<RDMADevice> RDMASession::device() const {
  return core_->device();
}
const SessionOptions& RDMASession::options() const noexcept {
  return core_->options();
}
void RDMASession::on_connect_failed(const std::string& peer, const Error& why) {
  core_->log_failed(peer, why);
}

Status ServerSession::start() {
  return core_->start_server();
}
std::uint16_t ServerSession::port() const {
  return core_->port();
}
Result<std::shared_ptr<EndPoint>> ServerSession::wait_for_endpoint(Deadline deadline) {
  return core_->wait_for_endpoint(deadline);
}
void ServerSession::end_handshake(const std::string& peer_address, const Error& why) {
  core_->end_handshake(peer_address, why);
}

Result<std::shared_ptr<EndPoint>> ClientSession::connect() {
  return core_->connect(core_->options().address);
}
Result<std::shared_ptr<EndPoint>> ClientSession::connect(const HostPort& server) {
  return core_->connect(server);
}

}  // namespace rdmacomm
