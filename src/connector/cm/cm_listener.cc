#include "connector/cm/cm_listener.h"

#include <poll.h>

#include "base/log_pace.h"
#include "base/logging.h"
#include "base/out_of_memory.h"
#include "base/start_thread.h"
#include "connector/cm/cm_connector.h"
#include "connector/cm/cm_id.h"
#include "connector/cm/cm_requests.h"
#include "connector/cm/cm_stream.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

Error cannot_listen_by_cm(const SocketAddress& address, std::error_code code) {
  const std::string what = "cannot listen by rdma_cm at " + address.to_text();
  // rdma_cm also returns "not available" if two programs use one port and one of them listens at every address.
  if (code == std::errc::address_not_available && !is_of_this_host(address)) {
    return make_error(code, what + ": this host does not have that address; see `ip address`");
  }
  if (code == std::errc::address_in_use || code == std::errc::address_not_available) {
    return make_error(std::make_error_code(std::errc::address_in_use), what + ": another program listens there");
  }
  if (code == std::errc::no_such_device) {
    return make_error(Errc::kNoDevice, what + ": no RDMA device of this host has that address; see `rdma link`");
  }
  return make_error(code, what);
}

/// For a listener at one address. A listener at all addresses is not informed, and continues on the other devices.
std::string device_is_gone(const CmId& listening) {
  const ibv_context* context = listening.get()->verbs;
  const std::string device = context == nullptr ? "the RDMA device" : ibv_get_device_name(context->device);
  return device + " of " + listening.local().to_text() +
         " was removed: this server accepts no more connections by rdma_cm there, even if the device comes back; "
         "restart the server then";
}

/// Refuses a connection with our private data, by which the peer recognizes this protocol.
void refuse(rdma_cm_id* id) {
  const auto reason = CmPrivateData{}.encode();
  if (rdma_reject(id, reason.data(), static_cast<std::uint8_t>(reason.size())) != 0) {
    RDMACOMM_VLOG(2) << "a connection to be refused has already ended";
  }
}

}  // namespace

/// A peer's request for a connection.
struct CmListener::Request {
  std::unique_ptr<CmId> id;
  CmPrivateData data;
};

CmListener::CmListener(WakeEvent arrived, WakeEvent stop)
    : arrived_(std::move(arrived)),
      stop_(std::move(stop)),
      registry_(std::make_shared<CmRegistry>()),
      pace_(std::make_unique<LogPace>()) {}

Result<std::unique_ptr<CmListener>> CmListener::listen(const HostPort& where, const TcpOptions& options,
                                                       const FindBy& find_by) {
  if (Status valid = options.validate(); !valid) return valid.error();
  auto arrived = WakeEvent::create();
  if (!arrived) return arrived.error();
  auto stop = WakeEvent::create();
  if (!stop) return stop.error();
  std::unique_ptr<CmListener> listener(new CmListener(std::move(*arrived), std::move(*stop)));
  Status listening =
      where.host.empty() ? listener->listen_anywhere(where.port) : listener->listen_at_host(where, options, find_by);
  if (listening) listening = start_thread(listener->thread_, "rdma-listener", [raw = listener.get()] { raw->run(); });
  if (!listening) return listening.error();
  return listener;
}

Status CmListener::listen_at_host(const HostPort& where, const TcpOptions& options, const FindBy& find_by) {
  auto addresses = resolve_by(where, options, find_by);
  return addresses ? listen_at(addresses->front()) : addresses.error();
}

/// One family after the other: iWARP devices accept no IPv4 client on a listener at [::].
Status CmListener::listen_anywhere(std::uint16_t port) {
  if (Status listening = listen_at(any_address(AF_INET, port)); !listening) return listening;
  const std::string ipv4 = address_;
  const Status six = listen_at(any_address(AF_INET6, port_));
  const bool no_ipv6 = six.code() == std::errc::address_family_not_supported;
  if (six) address_ = ipv4 + " and " + address_;
  return no_ipv6 ? Status() : six;
}

Status CmListener::listen_at(SocketAddress address) {
  auto id = CmId::create();
  if (!id) return id.status();
  int on = 1;
  const int set = rdma_set_option((*id)->get(), RDMA_OPTION_ID, RDMA_OPTION_ID_AFONLY, &on, sizeof(on));
  Status listening = verbs::from_minus_one(set, "");
  if (listening) listening = verbs::from_minus_one(rdma_bind_addr((*id)->get(), address.get()), "");
  if (listening) listening = verbs::from_minus_one(rdma_listen((*id)->get(), static_cast<int>(kMaxWaiting)), "");
  if (!listening) return cannot_listen_by_cm(address, listening.code());
  port_ = ntohs(rdma_get_src_port((*id)->get()));
  address.set_port(port_);
  address_ = address.to_text();
  ids_.push_back(std::move(*id));
  return {};
}

CmListener::~CmListener() {
  stop_.signal();
  if (thread_.joinable()) thread_.join();
}

void CmListener::run() {
  std::vector<pollfd> waited{{stop_.fd(), POLLIN, 0}};
  for (const auto& id : ids_) waited.push_back({id->fd(), POLLIN, 0});
  while (waited.front().revents == 0) {
    (void)::poll(waited.data(), waited.size(), -1);
    for (const auto& id : ids_) {
      for (bool more = true; more;) {
        const Status handled = or_out_of_memory([&] {
          const auto event = id->take_event();
          more = event.has_value();
          if (event) handle(*event, *id);
          return Status();
        });
        if (!handled) warn("lost an incoming connection by rdma_cm", handled.error());
      }
    }
  }
}

void CmListener::handle(const CmEvent& event, const CmId& listening) {
  if (event.type == RDMA_CM_EVENT_DEVICE_REMOVAL) RDMACOMM_LOG(WARNING) << device_is_gone(listening);
  if (event.type != RDMA_CM_EVENT_CONNECT_REQUEST) return;
  auto data = CmPrivateData::decode(event.private_data);
  if (!data) {
    RDMACOMM_VLOG(1) << "refusing a connection by rdma_cm: " << data.error().context;
    refuse(event.id);
    rdma_destroy_id(event.id);
    return;
  }
  auto id = CmId::adopt(event.id);
  if (!id) return warn("lost an incoming connection by rdma_cm", id.error());
  sort_in({.id = std::move(*id), .data = *data});
}

void CmListener::sort_in(Request request) {
  rdma_cm_id* raw = request.id->get();
  if (request.data.purpose == CmPurpose::kQueuePair) {
    const auto requests = registry_->find(request.data.token);
    if (requests == nullptr || !requests->has_room(request.data.qpn)) return refuse(raw);
    requests->add(request.data.qpn, std::move(request.id));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMaxWaiting) return refuse(raw);
  waiting_.push_back(std::move(request));
  arrived_.signal();
}

/// Limited in rate, because any client can cause it repeatedly.
void CmListener::warn(const std::string& what, const Error& why) {
  const auto others = pace_->due();
  if (!others) return;
  const std::string count =
      *others == 0 ? "" : "; and " + std::to_string(*others) + " more since the last such warning";
  RDMACOMM_LOG(WARNING) << what << ": " << why.message() << count;
}

Result<std::unique_ptr<Connector>> CmListener::accept() {
  for (;;) {
    Request request;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        arrived_.clear();
        return std::unique_ptr<Connector>();
      }
      request = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const std::string who = request.id->peer().to_text();
    auto welcomed = welcome(std::move(request));
    if (welcomed) return welcomed;
    // If the client has disconnected meanwhile, or if resources are missing, rdma_cm informs the client.
    warn("cannot accept " + who + " by rdma_cm", welcomed.error());
  }
}

Result<std::unique_ptr<Connector>> CmListener::welcome(Request request) {
  auto stream = CmStream::create(std::move(request.id));
  if (!stream) return stream.error();
  auto entered = registry_->enter();
  if (!entered) return entered.error();
  const auto [token, requests] = *entered;
  std::unique_ptr<CmConnector> connector(new CmConnector(std::move(*stream), token));
  connector->registry_ = registry_;
  connector->requests_ = requests;
  if (Status accepted = connector->messages_.accept(request.data, token); !accepted) return accepted.error();
  return std::unique_ptr<Connector>(std::move(connector));
}

}  // namespace rdmacomm
