#include "contract/cm_linker.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <rdma/rdma_cma.h>
#include <sys/socket.h>

#include <array>
#include <cstring>

#include "rdmacomm/base/deadline.h"
#include "rdmacomm/verbs/call.h"
#include "rdmacomm/verbs/describe.h"

namespace rdmacomm::contract {
namespace {

constexpr int kResolveMs = 5000;
constexpr std::chrono::seconds kStepTime{20};

using ChannelPtr = std::unique_ptr<rdma_event_channel, decltype(&rdma_destroy_event_channel)>;
using IdPtr = std::unique_ptr<rdma_cm_id, decltype(&rdma_destroy_id)>;
using EventPtr = std::unique_ptr<rdma_cm_event, decltype(&rdma_ack_cm_event)>;

ChannelPtr make_channel() {
  return {rdma_create_event_channel(), &rdma_destroy_event_channel};
}

sockaddr_in address_of(const std::string& ip, std::uint16_t port) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = port;
  inet_pton(AF_INET, ip.c_str(), &address.sin_addr);
  return address;
}
sockaddr* as_sockaddr(sockaddr_in& address) {
  return reinterpret_cast<sockaddr*>(&address);
}

/// The next event of `channel`, which must be `wanted` or, where given, `or_else`.
Result<EventPtr> expect_event(rdma_event_channel* channel, rdma_cm_event_type wanted,
                              rdma_cm_event_type or_else = RDMA_CM_EVENT_TIMEWAIT_EXIT,
                              Deadline deadline = Deadline::after(kStepTime)) {
  pollfd waited{channel->fd, POLLIN, 0};
  if (::poll(&waited, 1, deadline.poll_timeout_ms()) != 1) {
    return make_error(Errc::kTimeout, std::string("no rdma_cm event; expected ") + rdma_event_str(wanted));
  }
  rdma_cm_event* raw = nullptr;
  Status status = verbs::from_minus_one(rdma_get_cm_event(channel, &raw), "get an rdma_cm event");
  if (!status.ok()) return status.error();
  EventPtr event(raw, &rdma_ack_cm_event);
  if (event->event == wanted || event->event == or_else) return event;
  return make_error(Errc::kPeerRefused, std::string("rdma_cm event ") + rdma_event_str(event->event) + ", status " +
                                            std::to_string(event->status) + "; expected " + rdma_event_str(wanted));
}

rdma_conn_param parameters_of(const LinkEnd& end) {
  rdma_conn_param parameters{};
  parameters.qp_num = end.qp->qp_num;
  parameters.responder_resources = static_cast<std::uint8_t>(end.address.max_read_depth);
  parameters.initiator_depth = static_cast<std::uint8_t>(end.config.max_read_depth);
  parameters.retry_count = end.config.retry_count;
  parameters.rnr_retry_count = end.config.rnr_retry;
  return parameters;
}

/// Where the kernel does not move the queue pair itself (everything but iWARP): with the attributes that rdma_cm knows.
Status move_by(rdma_cm_id* id, const LinkEnd& end) {
  if (id->verbs->device->transport_type == IBV_TRANSPORT_IWARP) return {};
  for (const ibv_qp_state state : {IBV_QPS_RTR, IBV_QPS_RTS}) {
    ibv_qp_attr attributes{};
    attributes.qp_state = state;
    int mask = 0;
    Status status = verbs::from_minus_one(rdma_init_qp_attr(id, &attributes, &mask), "ask rdma_cm for attributes");
    if (!status.ok()) return status;
    // rdma_cm has these from the peer, or guesses: rnr_retry_count of one end is for the other (rdma_connect(3)).
    attributes.min_rnr_timer = end.config.min_rnr_timer_code();
    attributes.rnr_retry = end.config.rnr_retry;
    attributes.retry_cnt = end.config.retry_count;
    attributes.timeout = end.config.ack_timeout_code();
    status = verbs::from_value(ibv_modify_qp(end.qp, &attributes, mask), "move to " + verbs::to_text(state));
    if (!status.ok()) return status;
  }
  return {};
}

/// The connection, and the listening id where there was one. Destroying it ends the connection.
struct CmLink final : Link {
  ChannelPtr channel = make_channel();
  IdPtr listener{nullptr, &rdma_destroy_id};
  IdPtr id{nullptr, &rdma_destroy_id};

  bool ends(Deadline deadline) override {
    return expect_event(channel.get(), RDMA_CM_EVENT_DISCONNECTED, RDMA_CM_EVENT_TIMEWAIT_EXIT, deadline).has_value();
  }

  Status create_id(IdPtr& made) {
    rdma_cm_id* raw = nullptr;
    Status status =
        verbs::from_minus_one(rdma_create_id(channel.get(), &raw, nullptr, RDMA_PS_TCP), "make an rdma_cm id");
    if (status.ok()) made.reset(raw);
    return status;
  }

  Status listen(const LinkEnd& end) {
    if (Status status = create_id(listener); !status.ok()) return status;
    sockaddr_in where = address_of(end.ip, 0);
    Status status = verbs::from_minus_one(rdma_bind_addr(listener.get(), as_sockaddr(where)), "bind to " + end.ip);
    if (!status.ok()) return status;
    return verbs::from_minus_one(rdma_listen(listener.get(), 1), "listen at " + end.ip);
  }
  Status accept(const LinkEnd& end) {
    {
      auto request = expect_event(channel.get(), RDMA_CM_EVENT_CONNECT_REQUEST);
      if (!request) return request.status();
      id.reset((*request)->id);
    }
    if (Status status = move_by(id.get(), end); !status.ok()) return status;
    rdma_conn_param parameters = parameters_of(end);
    const Status status = verbs::from_minus_one(rdma_accept(id.get(), &parameters), "accept");
    if (!status.ok()) return status;
    return expect_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED).status();
  }

  Status resolve(const std::string& from, const std::string& to, std::uint16_t port) {
    if (Status status = create_id(id); !status.ok()) return status;
    sockaddr_in source = address_of(from, 0);
    sockaddr_in target = address_of(to, port);
    Status status = verbs::from_minus_one(
        rdma_resolve_addr(id.get(), as_sockaddr(source), as_sockaddr(target), kResolveMs), "resolve " + to);
    if (!status.ok()) return status;
    status = expect_event(channel.get(), RDMA_CM_EVENT_ADDR_RESOLVED).status();
    if (!status.ok()) return status;
    status = verbs::from_minus_one(rdma_resolve_route(id.get(), kResolveMs), "find a route to " + to);
    if (!status.ok()) return status;
    return expect_event(channel.get(), RDMA_CM_EVENT_ROUTE_RESOLVED).status();
  }
  Status connect(const LinkEnd& end) {
    rdma_conn_param parameters = parameters_of(end);
    Status status = verbs::from_minus_one(rdma_connect(id.get(), &parameters), "connect");
    if (!status.ok()) return status;
    auto answer = expect_event(channel.get(), RDMA_CM_EVENT_ESTABLISHED, RDMA_CM_EVENT_CONNECT_RESPONSE);
    if (!answer || (*answer)->event == RDMA_CM_EVENT_ESTABLISHED) return answer.status();
    if (status = move_by(id.get(), end); !status.ok()) return status;
    return verbs::from_minus_one(rdma_establish(id.get()), "confirm the connection");
  }
};

/// What the passive end tells: where it listens.
struct Card {
  std::array<char, INET_ADDRSTRLEN> ip{};
  std::uint16_t port = 0;  ///< network byte order
};

class CmLinker final : public PairLinker {
 public:
  Result<std::unique_ptr<Link>> link(const LinkEnd& end, Role role, int line) override {
    auto made = std::make_unique<CmLink>();
    if (made->channel == nullptr) return verbs::from_minus_one(-1, "make an rdma_cm event channel").error();
    Status status = role == Role::kPassive ? link_passive(*made, end, line) : link_active(*made, end, line);
    if (!status.ok()) return status.error();
    auto remote = exchange_addresses(end.address, line);
    if (!remote) return remote.error();
    if (status = end.move(*remote); !status.ok()) return status.error();
    if (status = meet(line); !status.ok()) return status.error();
    return std::unique_ptr<Link>(std::move(made));
  }

 private:
  static Status link_passive(CmLink& made, const LinkEnd& end, int line) {
    if (Status status = made.listen(end); !status.ok()) return status;
    Card card;
    std::strncpy(card.ip.data(), end.ip.c_str(), card.ip.size() - 1);
    card.port = rdma_get_src_port(made.listener.get());
    if (::send(line, &card, sizeof(card), MSG_NOSIGNAL) != static_cast<ssize_t>(sizeof(card))) {
      return make_error(Errc::kPeerLost, "the other end of the line is gone");
    }
    return made.accept(end);
  }
  static Status link_active(CmLink& made, const LinkEnd& end, int line) {
    Card card;
    if (::recv(line, &card, sizeof(card), MSG_WAITALL) != static_cast<ssize_t>(sizeof(card))) {
      return make_error(Errc::kPeerLost, "the other end of the line is gone");
    }
    if (Status status = made.resolve(end.ip, card.ip.data(), card.port); !status.ok()) return status;
    return made.connect(end);
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
