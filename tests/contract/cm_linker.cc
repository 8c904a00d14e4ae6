#include "contract/cm_linker.h"

#include <netinet/in.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "connector/cm/cm_id.h"
#include "verbs/call.h"
#include "verbs/describe.h"

namespace rdmacomm::contract {
namespace {

CmWait wait_long() {
  return {.deadline = Deadline::after(std::chrono::seconds(20))};
}

/// Returns the next event of `id`. It must be `wanted` or, if set, `or_else`.
Result<CmEvent> expect_event(CmId& id, rdma_cm_event_type wanted,
                             rdma_cm_event_type or_else = RDMA_CM_EVENT_TIMEWAIT_EXIT,
                             const CmWait& wait = wait_long()) {
  auto event = id.await_event(wait);
  if (!event || event->type == wanted || event->type == or_else) return event;
  return make_error(Errc::kPeerRefused, event->to_text() + "; expected " + rdma_event_str(wanted));
}

Result<SocketAddress> address_of(const std::string& ip, std::uint16_t port) {
  auto found = resolve({ip, port});
  if (!found) return found.error();
  return found->front();
}

rdma_conn_param parameters_of(const LinkEnd& end) {
  rdma_conn_param parameters{};
  parameters.qp_num = end.qp->qp_num;
  parameters.responder_resources = static_cast<std::uint8_t>(end.address.max_read_depth);
  parameters.initiator_depth = static_cast<std::uint8_t>(end.config.max_read_depth.value_or(0));
  parameters.retry_count = end.config.retry_count;
  parameters.rnr_retry_count = end.config.rnr_retry;
  return parameters;
}

/// For devices whose queue pairs the kernel does not move itself (all except iWARP): moves it with the attributes from
/// rdma_cm.
Status move_by(rdma_cm_id* id, const LinkEnd& end) {
  if (id->verbs->device->transport_type == IBV_TRANSPORT_IWARP) return {};
  for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int mask = 0;
    Status status = verbs::from_minus_one(rdma_init_qp_attr(id, &attributes, &mask), "ask rdma_cm for attributes");
    if (!status.ok()) return status;
    // rdma_cm gets these from the peer, or guesses: rnr_retry_count of one end applies to the other (rdma_connect(3)).
    attributes.min_rnr_timer = end.config.min_rnr_timer_code();
    attributes.rnr_retry = end.config.rnr_retry;
    attributes.retry_cnt = end.config.retry_count;
    attributes.timeout = end.config.ack_timeout_code();
    status = verbs::from_value(ibv_modify_qp(end.qp, &attributes, mask), "move to " + verbs::to_text(state));
    if (!status.ok()) return status;
  }
  return {};
}

/// The connection. Destroying it ends the connection.
struct CmLinked final : Link {
  std::unique_ptr<CmId> id;

  bool ends(Deadline deadline) override {
    const CmWait wait{.deadline = deadline};
    return expect_event(*id, RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, wait).has_value();
  }
  Status accept(CmId& listener, const LinkEnd& end) {
    auto request = expect_event(listener, RDMA_CM_EVENT_CONNECT_REQUEST);
    if (!request) return request.status();
    auto adopted = CmId::adopt(request->id);
    if (!adopted) return adopted.status();
    id = std::move(*adopted);
    if (Status status = move_by(id->get(), end); !status.ok()) return status;
    rdma_conn_param parameters = parameters_of(end);
    const Status status = verbs::from_minus_one(rdma_accept(id->get(), &parameters), "accept");
    if (!status.ok()) return status;
    return expect_event(*id, RDMA_CM_EVENT_ESTABLISHED).status();
  }
  Status connect(const LinkEnd& end, const std::string& ip, std::uint16_t port) {
    const auto from = address_of(end.ip, 0);
    if (!from) return from.status();
    const auto to = address_of(ip, port);
    if (!to) return to.status();
    auto found = CmId::towards(*to, *from, 0, wait_long());
    if (!found) return found.status();
    id = std::move(*found);
    rdma_conn_param parameters = parameters_of(end);
    Status status = verbs::from_minus_one(rdma_connect(id->get(), &parameters), "connect");
    if (!status.ok()) return status;
    auto answer = expect_event(*id, RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_CONNECT_RESPONSE);
    if (!answer || answer->type == RDMA_CM_EVENT_ESTABLISHED) return answer.status();
    if (status = move_by(id->get(), end); !status.ok()) return status;
    return verbs::from_minus_one(rdma_establish(id->get()), "confirm the connection");
  }
};

Result<std::unique_ptr<CmId>> listen_at(const std::string& ip) {
  auto where = address_of(ip, 0);
  if (!where) return where.error();
  auto listener = CmId::create();
  if (!listener) return listener;
  Status status = verbs::from_minus_one(rdma_bind_addr((*listener)->get(), where->get()), "bind to " + ip);
  if (status) status = verbs::from_minus_one(rdma_listen((*listener)->get(), 1), "listen at " + ip);
  if (!status) return status.error();
  return listener;
}

/// Sent by the passive end: the address at which it listens.
struct ListenAddress {
  std::array<char, INET6_ADDRSTRLEN> ip{};
  std::uint16_t port = 0;
};

class CmLinker final : public PairLinker {
 public:
  Result<std::unique_ptr<Link>> link(const LinkEnd& end, Role role, int line) override {
    auto made = std::make_unique<CmLinked>();
    Status status = role == Role::kPassive ? link_passive(*made, end, line) : link_active(*made, end, line);
    if (!status.ok()) return status.error();
    auto remote = exchange_addresses(end.address, line);
    if (!remote) return remote.error();
    if (status = end.move(*remote); !status.ok()) return status.error();
    if (status = synchronize(line); !status.ok()) return status.error();
    return std::unique_ptr<Link>(std::move(made));
  }

 private:
  static Status link_passive(CmLinked& made, const LinkEnd& end, int line) {
    auto listener = listen_at(end.ip);
    if (!listener) return listener.status();
    ListenAddress address;
    std::strncpy(address.ip.data(), end.ip.c_str(), address.ip.size() - 1);
    address.port = ntohs(rdma_get_src_port((*listener)->get()));
    if (::send(line, &address, sizeof(address), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(address))) {
      return make_error(Errc::kPeerLost, "the other end of the line is gone");
    }
    return made.accept(**listener, end);
  }
  static Status link_active(CmLinked& made, const LinkEnd& end, int line) {
    ListenAddress address;
    if (::recv(line, &address, sizeof(address), MSG_WAITALL) != static_cast<ssize_t>(sizeof(address))) {
      return make_error(Errc::kPeerLost, "the other end of the line is gone");
    }
    return made.connect(end, address.ip.data(), address.port);
  }
};

int modify_unless_moved(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  const bool moved =
      (mask & IBV_QP_STATE) != 0 && (attributes->qp_state == IBV_QPS_RTR || attributes->qp_state == IBV_QPS_RTS);
  return moved ? 0 : ibv_modify_qp(qp, attributes, mask);
}

}  // namespace

std::unique_ptr<PairLinker> make_cm_linker() {
  return std::make_unique<CmLinker>();
}

const verbs::Api& cm_linked_api() {
  static const verbs::Api table = [] {
    verbs::Api changed = verbs::libibverbs_api();
    changed.modify_qp = modify_unless_moved;
    return changed;
  }();
  return table;
}

}  // namespace rdmacomm::contract
