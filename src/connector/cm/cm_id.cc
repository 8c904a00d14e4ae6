#include "connector/cm/cm_id.h"

#include <fcntl.h>
#include <poll.h>

#include <algorithm>
#include <cstring>

#include "base/logging.h"
#include "base/system_call.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

SocketAddress copy_of(const sockaddr* address) {
  SocketAddress copy;
  copy.length = address->sa_family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  std::memcpy(&copy.storage, address, copy.length);
  return copy;
}

constexpr int kResolveStepMs = 300;

/// The remaining time, as rdma_cm takes it: at least 1 ms.
int timeout_ms(Deadline deadline) {
  constexpr int kHour = 3'600'000;
  return deadline.is_never() ? kHour : std::max(1, deadline.poll_timeout_ms());
}

/// The error for an event that ends the resolution of an address.
Error not_resolved(const CmEvent& event, const std::string& what) {
  const int number = event.status < 0 ? -event.status : event.status;
  if (event.type == RDMA_CM_EVENT_ADDR_ERROR && (number == ENODEV || number == EADDRNOTAVAIL || number == 0)) {
    return make_error(Errc::kNoDevice, "cannot " + what + ": the route to it uses no RDMA device of this host");
  }
  const std::error_code code = number == ETIMEDOUT ? std::error_code(Errc::kTimeout) : verbs::os_error(number);
  return make_error(
      code, "cannot " + what + ": " + event.to_text() + "; check that a route exists and that the host answers");
}

}  // namespace

std::string CmEvent::to_text() const {
  std::string text = rdma_event_str(type);
  if (status < 0) return text + ": " + std::strerror(-status);
  return status == 0 ? text : text + ", status " + std::to_string(status);
}

Status CmWait::sleep_on(int fd) const {
  for (;;) {
    if (connection != nullptr) {
      (void)connection->check_peer();
      if (Status ended = connection->status(); !ended) return ended;
    }
    // check_peer() has already taken all events at its descriptor except an end.
    const WatchedFd ends = connection != nullptr ? connection->watched() : WatchedFd{};
    pollfd waited[] = {{fd, POLLIN, 0}, {cancel_fd, POLLIN, 0}, {ends.fd, static_cast<short>(ends.events), 0}};
    const int ready = ::poll(waited, std::size(waited), deadline.poll_timeout_ms());
    if (ready < 0 && last_system_error() != std::errc::interrupted) return {};  // out of memory: the caller looks again
    if (ready > 0 && waited[0].revents != 0) return {};
    if (ready > 0 && waited[1].revents != 0) return make_error(Errc::kStopped, "stopped while connecting");
    if (deadline.passed()) return make_error(Errc::kTimeout, "no event arrived before the deadline");
  }
}

Status CmId::open_channel() {
  channel_ = rdma_create_event_channel();
  if (channel_ == nullptr) {
    const Error why = verbs::from_minus_one(-1, "open rdma_cm").error();
    if (why.code == std::errc::too_many_files_open || why.code == std::errc::too_many_files_open_in_system) {
      return make_error(why.code, why.context + ": raise the limit with `ulimit -n`");
    }
    return make_error(Errc::kNotSupported,
                      why.message() + ": load the kernel module rdma_ucm, or connect by TCP (ConnectorKind::kTcp)");
  }
  if (Status status = set_nonblocking(channel_->fd); !status) return status;
  return verbs::from_minus_one(fcntl(channel_->fd, F_SETFD, FD_CLOEXEC), "set up an event channel");
}

Result<std::unique_ptr<CmId>> CmId::create() {
  std::unique_ptr<CmId> made(new CmId);
  if (Status status = made->open_channel(); !status) return status.error();
  const int returned = rdma_create_id(made->channel_, &made->id_, nullptr, RDMA_PS_TCP);
  if (Status status = verbs::from_minus_one(returned, "create an rdma_cm id"); !status) return status.error();
  return made;
}

Result<std::unique_ptr<CmId>> CmId::adopt(rdma_cm_id* incoming) {
  std::unique_ptr<CmId> made(new CmId);
  Status status = made->open_channel();
  if (status)
    status = verbs::from_minus_one(rdma_migrate_id(incoming, made->channel_), "take over an incoming connection");
  if (!status) {
    rdma_reject(incoming, nullptr, 0);
    rdma_destroy_id(incoming);
    return status.error();
  }
  made->id_ = incoming;
  return made;
}

CmId::~CmId() {
  if (id_ != nullptr && rdma_destroy_id(id_) != 0) {
    RDMACOMM_LOG(ERROR) << "cannot destroy an rdma_cm id: " << last_system_error().message();
  }
  if (channel_ != nullptr) rdma_destroy_event_channel(channel_);
}

bool CmId::is_iwarp() const noexcept {
  return id_->verbs != nullptr && id_->verbs->device->transport_type == IBV_TRANSPORT_IWARP;
}

SocketAddress CmId::local() const {
  return copy_of(rdma_get_local_addr(id_));
}

SocketAddress CmId::peer() const {
  return copy_of(rdma_get_peer_addr(id_));
}

/// If a neighbour's address is not known yet, the kernel asks for it, and looks for the answer only at the end of a
/// step. Therefore the steps are short. Each step has an id of its own, because a failed id stays bound to its
/// result.
Result<std::unique_ptr<CmId>> CmId::towards(const SocketAddress& peer, const SocketAddress& local,
                                            std::uint8_t traffic_class, const CmWait& wait) {
  for (;;) {
    auto id = create();
    if (!id) return id;
    Status status = (*id)->set_traffic_class(traffic_class);
    if (status) status = (*id)->resolve(peer, local, wait);
    if (status) return id;
    if (status.code() != Errc::kTimeout || wait.deadline.passed()) return status.error();
  }
}

Status CmId::set_traffic_class(std::uint8_t traffic_class) {
  if (traffic_class == 0) return {};
  const int returned = rdma_set_option(id_, RDMA_OPTION_ID, RDMA_OPTION_ID_TOS, &traffic_class, sizeof(traffic_class));
  return verbs::from_minus_one(returned, "set the traffic class");
}

Status CmId::resolve(const SocketAddress& peer, const SocketAddress& local, const CmWait& wait) {
  SocketAddress to = peer;
  SocketAddress from = local;
  from.set_port(0);
  const std::string what = "reach " + peer.to_text() + " by rdma_cm";
  if (rdma_resolve_addr(id_, from.get(), to.get(), kResolveStepMs) != 0) {
    return not_resolved({.type = RDMA_CM_EVENT_ADDR_ERROR, .status = -last_system_error().value()}, what);
  }
  if (Status status = await_step(RDMA_CM_EVENT_ADDR_RESOLVED, what, wait); !status) return status;
  if (rdma_resolve_route(id_, timeout_ms(wait.deadline)) != 0) {
    return not_resolved({.type = RDMA_CM_EVENT_ROUTE_ERROR, .status = -last_system_error().value()}, what);
  }
  return await_step(RDMA_CM_EVENT_ROUTE_RESOLVED, what, wait);
}

Status CmId::await_step(rdma_cm_event_type wanted, const std::string& what, const CmWait& wait) {
  auto event = await_event(wait);
  if (!event) return make_error(event.code(), "cannot " + what + ": " + event.error().context);
  if (event->type == wanted) return {};
  return not_resolved(*event, what);
}

Result<CmEvent> CmId::await_event(const CmWait& wait) {
  for (;;) {
    if (auto event = take_event()) return std::move(*event);
    if (Status slept = wait.sleep_on(fd()); !slept) return slept.error();
  }
}

std::optional<CmEvent> CmId::take_event() {
  rdma_cm_event* raw = nullptr;
  if (rdma_get_cm_event(channel_, &raw) != 0) return {};
  // Acknowledged also if there is no memory for its content, because destroying the id waits for the acknowledgement.
  const std::unique_ptr<rdma_cm_event, decltype(&rdma_ack_cm_event)> acknowledged(raw, &rdma_ack_cm_event);
  CmEvent event{.type = raw->event, .status = raw->status};
  if (event.type == RDMA_CM_EVENT_CONNECT_REQUEST) event.id = raw->id;
  const rdma_conn_param& parameters = raw->param.conn;
  if (parameters.private_data != nullptr) {
    const auto* bytes = static_cast<const std::byte*>(parameters.private_data);
    event.private_data.assign(bytes, bytes + parameters.private_data_len);
  }
  RDMACOMM_VLOG(3) << "rdma_cm: " << event.to_text();
  return event;
}

rdma_conn_param connection_parameters(std::span<const std::byte> private_data) {
  rdma_conn_param parameters{};
  parameters.private_data = private_data.data();
  parameters.private_data_len = static_cast<std::uint8_t>(private_data.size());
  return parameters;
}

}  // namespace rdmacomm
