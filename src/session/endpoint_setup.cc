#include "session/endpoint_setup.h"

#include <algorithm>
#include <array>
#include <system_error>

#include "base/logging.h"
#include "base/out_of_memory.h"
#include "channel/receive_pool_core.h"
#include "session/check_way.h"

namespace rdmacomm {
namespace {

constexpr const char* kEstablishedTag = "rdmacomm.established";
constexpr std::size_t kOneMessage = 1;  // byte: a second message waits until the first was taken

/// Before the peer's description of its endpoint has arrived, longer messages are not allowed.
void expect_offer(Connector& connector) {
  connector.limit_inbox(kOneMessage);
  connector.limit_messages(kMaxOfferBytes);
}

Result<EndPointDescription> receive_description(Connector& connector, MessageType type, Deadline deadline) {
  auto payload = connector.expect_message(type, deadline);
  if (!payload) return payload.error();
  auto description = EndPointDescription::decode(*payload);
  if (!description)
    return make_error(description.code(), connector.peer_text() + " sent " + description.error().context);
  connector.limit_inbox(Connector::kMaxInboxBytesInHandshake);
  connector.limit_messages(kMaxPayloadBytes);
  return description;
}

Status check_way(const Connector& connector, const DeviceCore& device) {
  const auto way = connector.rdma_way();
  if (!way) return way.status();
  if (!*way) return {};
  return check_way(**way, device, connector.local_address() + " with " + connector.peer_address());
}

PeerInfo info_of(const Connector& connector, const Hello& hello) {
  return {.address = connector.peer_address(), .node = hello.node, .pid = hello.pid, .instance = hello.instance};
}

/// Errors for lack of threads or descriptors pass, so the client gets kServerBusy and may try again.
Error for_client(const Error& why) {
  constexpr std::array kPassing{std::errc::resource_unavailable_try_again, std::errc::too_many_files_open,
                                std::errc::too_many_files_open_in_system};
  const bool passes = std::ranges::any_of(kPassing, [&](std::errc each) { return why.code == each; });
  return passes ? make_error(Errc::kServerBusy, why.message()) : why;
}

}  // namespace

/// Sends the reason while the socket is still open. The endpoint is dropped later, because that ends the connection.
Result<std::shared_ptr<EndPointCore>> EndPointSetup::outcome(const Status& status, Connector& connector,
                                                             const Made& made, bool is_server) const {
  if (status) return made.endpoint;
  // If the peer has given up, its reason says more than the local error.
  const bool gone = connector.check_peer() != PeerState::kOpen;
  const std::error_code code = connector.status().code();
  const bool ended_there = gone && (code == Errc::kPeerRefused || code == Errc::kServerBusy);
  const Error why = ended_there ? connector.status().error() : status.error();
  connector.refuse(is_server ? for_client(why) : why);
  if (made.endpoint) end_unestablished(hooks, made.endpoint, made.hook_was_called, why);
  return why;
}

void end_unestablished(const GuardedHooks& hooks, const std::shared_ptr<EndPointCore>& endpoint, bool hook_was_called,
                       const Error& why) {
  endpoint->stop();
  // Wait first, so that the requests of post_connecting() are not in use any more when the failure is reported.
  const Status finished = endpoint->finish(Deadline::after(EndPointCore::kCloseTime));
  if (!finished) RDMACOMM_LOG(ERROR) << "closing the endpoint to " << endpoint->peer() << ": " << finished.message();
  if (hook_was_called) hooks.on_ended(endpoint, why);
}

Result<std::shared_ptr<EndPointCore>> EndPointSetup::as_client(const std::shared_ptr<Connector>& connector) const {
  Made made;
  const Status done = or_out_of_memory([&] { return client_steps(connector, made); });
  return outcome(done, *connector, made, false);
}

Result<std::shared_ptr<EndPointCore>> EndPointSetup::as_server(const std::shared_ptr<Connector>& connector) const {
  Made made;
  const Status done = or_out_of_memory([&] { return server_steps(connector, made); });
  return outcome(done, *connector, made, true);
}

Status EndPointSetup::client_steps(const std::shared_ptr<Connector>& connector, Made& made) const {
  std::shared_ptr<EndPointCore>& endpoint = made.endpoint;
  expect_offer(*connector);
  auto peer = connector->exchange_hello(hello, deadline());
  if (!peer) return peer.status();
  const PeerInfo info = info_of(*connector, *peer);
  Status status = check_way(*connector, *device);
  if (status) status = host.admit();
  if (status) status = make_endpoint(connector, info, endpoint);
  if (!status) return status;
  const Deadline answer_by = deadline();
  status = connector->send_message(MessageType::kOffer, endpoint->description().encode(), answer_by);
  if (!status) return status;
  auto answer = receive_description(*connector, MessageType::kAnswer, answer_by);
  if (!answer) return answer.status();
  status = endpoint->set_peer(std::move(*answer));
  if (status) status = endpoint->connect(answer_by);
  if (!status) return status;
  return wait_for_peer(made);
}

Status EndPointSetup::server_steps(const std::shared_ptr<Connector>& connector, Made& made) const {
  std::shared_ptr<EndPointCore>& endpoint = made.endpoint;
  const Deadline offer_by = deadline();
  expect_offer(*connector);
  auto peer = connector->answer_hello(hello, offer_by);
  if (!peer) return peer.status();
  if (Status way = check_way(*connector, *device); !way) return way;
  auto offer = receive_description(*connector, MessageType::kOffer, offer_by);
  if (!offer) return offer.status();
  PeerInfo info = info_of(*connector, *peer);
  info.private_data = std::move(offer->private_data);
  offer->private_data = info.private_data;
  Status status = host.admit();
  if (status) status = make_endpoint(connector, info, endpoint);
  if (status) status = endpoint->set_peer(std::move(*offer));
  // The answer is sent before connecting: with rdma_cm the client begins to connect, and needs the queue pairs'
  // addresses.
  const Deadline connected_by = deadline();
  if (status) status = connector->send_message(MessageType::kAnswer, endpoint->description().encode(), connected_by);
  if (status) status = endpoint->connect(connected_by);
  if (!status) return status;
  return wait_for_peer(made);
}

Status EndPointSetup::make_endpoint(const std::shared_ptr<Connector>& connector, const PeerInfo& peer,
                                    std::shared_ptr<EndPointCore>& endpoint) const {
  HcaConfig config;
  if (Status status = hooks.lazy_config_hca(config, peer); !status) return status;
  if (hooks.wants_completions() && config.thread_mode == ThreadMode::kApplication) {
    return make_error(
        Errc::kInvalidArgument,
        "SessionFunctions::on_completion is set, but no thread calls it in ThreadMode::kApplication: choose "
        "another HcaConfig::thread_mode in lazy_config_hca(), or leave on_completion empty");
  }
  if (Status status = config.validate(device->limits()); !status) return status;
  config = config.fitted(device->limits());
  std::shared_ptr<CompletionQueue> shared;
  if (config.thread_mode == ThreadMode::kThreadPerCompletionQueue) {
    auto queue = host.shared_queue(config);
    if (!queue) return queue.status();
    shared = std::move(*queue);
  }
  std::shared_ptr<ReceivePoolCore> receives;
  if (!config.receive_pool_key.empty()) {
    auto pool = host.receive_pool(config);
    if (!pool) return pool.status();
    receives = std::move(*pool);
  }
  auto made = EndPointCore::create({.device = device,
                                    .connector = connector,
                                    .config = std::move(config),
                                    .shared_queue = std::move(shared),
                                    .receive_pool = std::move(receives),
                                    .server = host.queue_server()});
  if (!made) return made.status();
  endpoint = std::move(*made);
  return host.enlist(endpoint);
}

Status EndPointSetup::wait_for_peer(Made& made) const {
  EndPointCore& endpoint = *made.endpoint;
  if (Status opened = endpoint.open_more(deadline()); !opened) return opened;
  made.hook_was_called = true;
  if (Status status = hooks.post_connecting(made.endpoint); !status) return status;
  return endpoint.sync_with_peer(kEstablishedTag, deadline());
}

}  // namespace rdmacomm
