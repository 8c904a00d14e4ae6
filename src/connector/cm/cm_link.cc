#include "connector/cm/cm_link.h"

#include "connector/cm/cm_private_data.h"
#include "verbs/call.h"
#include "verbs/describe.h"

namespace rdmacomm {

Status CmLink::attributes(ibv_qp_state to, ibv_qp_attr& attributes) {
  attributes = {};
  attributes.qp_state = to;
  int mask = 0;
  return verbs::from_minus_one(rdma_init_qp_attr(id_->get(), &attributes, &mask),
                               "get the attributes from rdma_cm that move a queue pair to " + verbs::to_text(to));
}

rdma_conn_param CmLink::parameters(std::span<const std::byte> private_data) const {
  rdma_conn_param parameters = connection_parameters(private_data);
  parameters.qp_num = qpn_;
  parameters.initiator_depth = options_.initiator_depth;
  parameters.responder_resources = options_.responder_resources;
  parameters.retry_count = options_.retry_count;
  parameters.rnr_retry_count = options_.rnr_retry;
  return parameters;
}

Error CmLink::failed(const CmEvent& event) const {
  const auto code = event.type == RDMA_CM_EVENT_REJECTED ? Errc::kPeerRefused : Errc::kPeerLost;
  return make_error(code, "cannot connect a queue pair to " + peer_ + " by rdma_cm: " + event.to_text());
}

Status ActiveCmLink::begin(const verbs::LinkOptions& options) {
  options_ = options;
  auto id = CmId::towards(context_.peer, context_.local, options.traffic_class, context_.wait);
  if (!id) return id.status();
  id_ = std::move(*id);
  const auto mine = CmPrivateData{.purpose = CmPurpose::kQueuePair, .token = token_, .qpn = qpn_}.encode();
  rdma_conn_param with = parameters(mine);
  Status asked = verbs::from_minus_one(rdma_connect(id_->get(), &with), "connect to " + peer_ + " by rdma_cm");
  if (!asked) return asked;
  auto event = id_->await_event(context_.wait);
  if (!event)
    return make_error(event.code(),
                      peer_ + " did not answer the request to connect a queue pair: " + event.error().context);
  const bool answered = event->type == RDMA_CM_EVENT_CONNECT_RESPONSE || event->type == RDMA_CM_EVENT_ESTABLISHED;
  return answered ? Status() : failed(*event);
}

Status ActiveCmLink::finish() {
  if (device_moves_queue_pair()) return {};
  return verbs::from_minus_one(rdma_establish(id_->get()),
                               "confirm the connection of a queue pair to " + peer_ + " by rdma_cm");
}

Status PassiveCmLink::begin(const verbs::LinkOptions& options) {
  options_ = options;
  auto id = requests_->take(remote_qpn_, context_.wait);
  if (!id)
    return make_error(id.code(), peer_ + " did not request the connection of its queue pair: " + id.error().context);
  id_ = std::move(*id);
  return {};
}

Status PassiveCmLink::finish() {
  rdma_conn_param with = parameters({});
  Status accepted =
      verbs::from_minus_one(rdma_accept(id_->get(), &with), "accept the connection of a queue pair of " + peer_);
  if (!accepted) return accepted;
  auto event = id_->await_event(context_.wait);
  if (!event)
    return make_error(event.code(),
                      peer_ + " did not confirm the connection of a queue pair: " + event.error().context);
  return event->type == RDMA_CM_EVENT_ESTABLISHED ? Status() : failed(*event);
}

}  // namespace rdmacomm
