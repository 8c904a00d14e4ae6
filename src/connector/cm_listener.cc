#include "rdmacomm/connector/cm_listener.h"

#include "base/start_thread.h"
#include "connector/cm_id.h"
#include "connector/cm_requests.h"
#include "connector/cm_stream.h"
#include "rdmacomm/base/log.h"
#include "rdmacomm/connector/cm_connector.h"
#include "rdmacomm/verbs/call.h"

namespace rdmacomm {
namespace {

Error cannot_listen(const SocketAddress& address, std::error_code code) {
  const std::string what = "cannot listen by rdma_cm at " + address.to_text();
  if (code == std::errc::address_in_use) return make_error(code, what + ": another program listens there");
  if (code == std::errc::no_such_device) {
    return make_error(Errc::kNoDevice, what + ": that address is not of an RDMA device; see `rdma link`");
  }
  return make_error(code, what);
}

/// Refuses a connection in our words, where there is a reason to give.
void refuse(rdma_cm_id* id) {
  const auto words = CmPrivateData{}.encode();
  if (rdma_reject(id, words.data(), static_cast<std::uint8_t>(words.size())) != 0) {
    RDMACOMM_VLOG(2) << "a connection that was to be refused is gone already";
  }
}

}  // namespace

/// Who asks for a connection.
struct CmListener::Newcomer {
  std::unique_ptr<CmId> id;
  CmPrivateData data;
};

CmListener::CmListener(const TcpOptions& options, std::unique_ptr<CmId> id, StopEvent knocked, StopEvent stop)
    : options_(options),
      id_(std::move(id)),
      knocked_(std::move(knocked)),
      stop_(std::move(stop)),
      registry_(std::make_shared<CmRegistry>()) {}

Result<std::unique_ptr<CmListener>> CmListener::listen(const HostPort& where, const TcpOptions& options) {
  if (Status valid = options.validate(); !valid) return valid.error();
  auto addresses = resolve(where, true);
  if (!addresses) return addresses.error();
  SocketAddress address = where.host.empty() ? any_address(AF_INET6, where.port) : addresses->front();
  auto id = CmId::create();
  if (!id) return id.error();
  auto knocked = StopEvent::create();
  if (!knocked) return knocked.error();
  auto stop = StopEvent::create();
  if (!stop) return stop.error();
  Status listening = verbs::from_minus_one(rdma_bind_addr((*id)->get(), address.get()), "");
  if (listening) listening = verbs::from_minus_one(rdma_listen((*id)->get(), static_cast<int>(kMostWaiting)), "");
  if (!listening) return cannot_listen(address, listening.code());
  std::unique_ptr<CmListener> listener(new CmListener(options, std::move(*id), std::move(*knocked), std::move(*stop)));
  address.set_port(ntohs(rdma_get_src_port(listener->id_->get())));
  listener->port_ = address.port();
  listener->address_ = address.to_text();
  if (Status started = start_thread(listener->thread_, [raw = listener.get()] { raw->run(); }); !started) {
    return started.error();
  }
  return listener;
}

CmListener::~CmListener() {
  stop_.signal();
  if (thread_.joinable()) thread_.join();
}

void CmListener::run() {
  const CmWait forever{.deadline = Deadline::never(), .cancel_fd = stop_.fd()};
  while (auto event = id_->await_event(forever)) {
    if (event->type != RDMA_CM_EVENT_CONNECT_REQUEST) continue;  // a device came or went
    auto data = CmPrivateData::decode(event->private_data);
    if (!data) {
      RDMACOMM_VLOG(1) << "refusing a connection by rdma_cm: " << data.error().context;
      refuse(event->id);
      rdma_destroy_id(event->id);
      continue;
    }
    auto id = CmId::adopt(event->id);
    if (!id) {
      RDMACOMM_LOG(WARNING) << "a connection by rdma_cm is lost: " << id.error().message();
      continue;
    }
    sort_in({.id = std::move(*id), .data = *data});
  }
}

void CmListener::sort_in(Newcomer newcomer) {
  rdma_cm_id* raw = newcomer.id->get();
  if (newcomer.data.purpose == CmPurpose::kQueuePair) {
    const auto requests = registry_->find(newcomer.data.token);
    if (requests == nullptr || !requests->has_room(newcomer.data.qpn)) return refuse(raw);
    requests->add(newcomer.data.qpn, std::move(newcomer.id));
    return;
  }
  const std::lock_guard lock(mutex_);
  if (waiting_.size() >= kMostWaiting) return refuse(raw);
  waiting_.push_back(std::move(newcomer));
  knocked_.signal();
}

Result<std::unique_ptr<Connector>> CmListener::accept() {
  for (;;) {
    Newcomer newcomer;
    {
      const std::lock_guard lock(mutex_);
      if (waiting_.empty()) {
        knocked_.clear();
        return std::unique_ptr<Connector>();
      }
      newcomer = std::move(waiting_.front());
      waiting_.pop_front();
    }
    const std::string who = newcomer.id->peer().to_text();
    auto welcomed = welcome(std::move(newcomer));
    if (welcomed) return welcomed;
    // One that left meanwhile, or for whom there are no resources, is told so by rdma_cm.
    RDMACOMM_LOG(WARNING) << "cannot accept " << who << " by rdma_cm: " << welcomed.error().message();
  }
}

Result<std::unique_ptr<Connector>> CmListener::welcome(Newcomer newcomer) {
  auto stream = CmStream::create(std::move(newcomer.id));
  if (!stream) return stream.error();
  auto entered = registry_->enter();
  if (!entered) return entered.error();
  const auto [token, requests] = *entered;
  std::unique_ptr<CmConnector> connector(new CmConnector(std::move(*stream), options_, token));
  connector->registry_ = registry_;
  connector->requests_ = requests;
  if (Status accepted = connector->messages_.accept(newcomer.data, token); !accepted) return accepted.error();
  return std::unique_ptr<Connector>(std::move(connector));
}

}  // namespace rdmacomm
