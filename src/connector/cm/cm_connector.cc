#include "connector/cm/cm_connector.h"

#include "connector/address_rounds.h"
#include "connector/cm/cm_link.h"
#include "connector/cm/cm_requests.h"
#include "connector/cm/cm_stream.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

Result<std::unique_ptr<CmStream>> try_one(const SocketAddress& address, const CmWait& wait, std::uint64_t& token) {
  // Bound to the source address of the route, so that rdma_cm looks for a path from that interface.
  const auto from = SocketAddress::towards(address);
  if (!from) return from.error();
  auto id = CmId::towards(address, *from, 0, wait);
  if (!id) return id.error();
  auto stream = CmStream::create(std::move(*id));
  if (!stream) return stream;
  auto answer = (*stream)->connect(wait);
  if (!answer) return answer.error();
  token = answer->token;
  return stream;
}

}  // namespace

Result<std::unique_ptr<CmConnector>> CmConnector::connect(const HostPort& server, const TcpOptions& options,
                                                          int cancel_fd) {
  std::uint64_t token = 0;
  AddressRounds rounds(server, options, cancel_fd);
  auto stream = rounds.run<std::unique_ptr<CmStream>>([&](const SocketAddress& address, Deadline deadline) {
    return try_one(address, {.deadline = deadline, .cancel_fd = cancel_fd}, token);
  });
  if (stream) return std::unique_ptr<CmConnector>(new CmConnector(std::move(*stream), token));
  const Error& why = stream.error();
  return may_connect_later(why.code) ? make_error(why.code, why.context + "; " + rounds.gave_up()) : why;
}

CmConnector::CmConnector(std::unique_ptr<CmStream> stream, std::uint64_t token)
    : Connector(std::move(stream)), messages_(static_cast<CmStream&>(this->stream())), token_(token) {}

CmConnector::~CmConnector() {
  all_linked();
}

/// From now on, requests with the token are not kept any more.
void CmConnector::all_linked() noexcept {
  if (requests_ == nullptr) return;
  registry_->forget(token_);
  requests_->close();
}

std::unique_ptr<verbs::QueuePairLink> CmConnector::link(const QpAddress& local, const QpAddress& remote,
                                                        Deadline deadline) {
  const CmLinkContext context{.local = messages_.id().local(),
                              .peer = messages_.id().peer(),
                              .wait = {.deadline = deadline, .cancel_fd = messages_.stop_fd(), .connection = this}};
  if (requests_ != nullptr) return std::make_unique<PassiveCmLink>(local.qpn, context, remote.qpn, requests_);
  return std::make_unique<ActiveCmLink>(local.qpn, context, token_);
}

Result<std::optional<RdmaWay>> CmConnector::rdma_way() const {
  rdma_cm_id* const id = messages_.id().get();
  RdmaWay way{.device = id->verbs->device->name, .port = id->port_num};
  if (messages_.id().is_iwarp()) return std::optional(way);
  ibv_qp_attr attributes{};
  attributes.qp_state = IBV_QPS_RTR;
  int mask = 0;
  const Status asked =
      verbs::from_minus_one(rdma_init_qp_attr(id, &attributes, &mask),
                            "get the GID from rdma_cm that it uses for the connection from " + local_address());
  if (!asked) return asked.error();
  if (attributes.ah_attr.is_global != 0) way.gid_index = attributes.ah_attr.grh.sgid_index;
  return std::optional(way);
}

void CmConnector::shutdown() noexcept {
  if (requests_ != nullptr) requests_->close();
  Connector::shutdown();
}

}  // namespace rdmacomm
