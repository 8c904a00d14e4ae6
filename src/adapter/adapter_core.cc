#include "adapter/adapter_core.h"

#include <sys/random.h>

#include <algorithm>
#include <string>

#include "base/logging.h"
#include "verbs/call.h"
#include "verbs/describe.h"

namespace rdmacomm {
namespace {

// Random, so that packets of an earlier connection with the same queue pair numbers are not accepted by this one.
Result<std::uint32_t> random_psn() {
  std::uint32_t bits = 0;
  const auto got = getrandom(&bits, sizeof(bits), 0);
  Status status = verbs::from_minus_one(static_cast<int>(got), "get a random packet sequence number");
  if (!status.ok()) return status.error();
  return bits & 0xffffff;
}

constexpr int kUsualInlineBytes = 64;

ibv_qp_init_attr init_attributes(const AdapterConfig& config, ibv_cq* send_cq, ibv_cq* recv_cq, ibv_srq* srq,
                                 std::uint32_t inline_bytes) {
  ibv_qp_init_attr attributes{};
  attributes.send_cq = send_cq;
  attributes.recv_cq = recv_cq;
  attributes.srq = srq;
  attributes.cap.max_send_wr = static_cast<std::uint32_t>(*config.send_depth);
  attributes.cap.max_recv_wr = static_cast<std::uint32_t>(*config.recv_depth);
  attributes.cap.max_send_sge = static_cast<std::uint32_t>(*config.max_send_slices);
  attributes.cap.max_recv_sge = static_cast<std::uint32_t>(*config.max_recv_slices);
  attributes.cap.max_inline_data = inline_bytes;
  attributes.qp_type = IBV_QPT_RC;
  attributes.sq_sig_all = 0;  // each request sets whether it wants a completion
  return attributes;
}

std::string sizes_text(const AdapterConfig& config) {
  return "send_depth " + std::to_string(*config.send_depth) + ", recv_depth " + std::to_string(*config.recv_depth) +
         ", max_send_slices " + std::to_string(*config.max_send_slices) + ", max_recv_slices " +
         std::to_string(*config.max_recv_slices);
}

// The likely cause of a refused transition, from experience with each error number.
std::string cause_of(ibv_qp_state to, std::error_code code) {
  if (code == std::errc::timed_out || code == std::errc::host_unreachable || code == std::errc::network_unreachable) {
    return "the local GID cannot reach the peer's GID: the subnets differ, no route exists, address "
           "resolution got no answer, or the peer's host is down; choose GIDs of one network at both peers";
  }
  if (to == IBV_QPS_RTR && code == std::errc::invalid_argument) {
    return "the device cannot reach the peer's GID from this GID index, or refuses one of the values; "
           "compare the GID type, IP version and MTU of both peers";
  }
  if (to == IBV_QPS_INIT && code == std::errc::invalid_argument) return "does the port's P_Key table have this index?";
  if (code == std::errc::too_many_files_open)
    return "this process has reached its limit of open descriptors; raise it with `ulimit -n`";
  if (code == std::errc::not_enough_memory) return "the device is out of resources, or RLIMIT_MEMLOCK is too low";
  return "the device refused the values";
}

}  // namespace

AdapterCore::AdapterCore(DeviceCore& device, NativeQueue& send_cq, NativeQueue& recv_cq, const AdapterConfig& config,
                         SharedReceiveQueue* receives, std::shared_ptr<ProtectionDomainCore> domain)
    : device_(device),
      send_cq_(send_cq),
      recv_cq_(recv_cq),
      receives_(receives),
      domain_(std::move(domain)),
      config_(config.fitted(device.limits())) {
  if (receives_ != nullptr) config_.recv_depth = 0;
}

AdapterCore::~AdapterCore() {
  qp_.reset();
  send_cq_.release(reserved_send_);
  recv_cq_.release(reserved_recv_);
}

Result<std::unique_ptr<AdapterCore>> AdapterCore::create(DeviceCore& device, NativeQueue& send_cq, NativeQueue& recv_cq,
                                                         const GidEntry& gid, const AdapterConfig& config,
                                                         SharedReceiveQueue* receives,
                                                         std::shared_ptr<ProtectionDomainCore> domain) {
  if (Status status = config.validate(device.limits()); !status.ok()) return status.error();
  const auto psn = random_psn();
  if (!psn) return psn.error();
  std::unique_ptr<AdapterCore> adapter(new AdapterCore(device, send_cq, recv_cq, config, receives, std::move(domain)));
  if (Status status = adapter->reserve_completions(); !status.ok()) return status.error();
  if (Status status = adapter->create_queue_pair(); !status.ok()) return status.error();
  if (Status status = adapter->choose_pkey(); !status.ok()) return status.error();
  adapter->fill_address(gid, *psn);
  const auto to_init = QpTransition::to_init(adapter->config_, device.port(), device.limits().atomics);
  if (Status status = adapter->apply(to_init); !status.ok()) return status.error();
  return adapter;
}

Status AdapterCore::reserve_completions() {
  if (Status status = send_cq_.reserve(*config_.send_depth); !status.ok()) return status;
  reserved_send_ = *config_.send_depth;
  if (Status status = recv_cq_.reserve(*config_.recv_depth); !status.ok()) return status;
  reserved_recv_ = *config_.recv_depth;
  return {};
}

Status AdapterCore::create_queue_pair() {
  const auto asked = static_cast<std::uint32_t>(config_.max_inline_bytes.value_or(kUsualInlineBytes));
  Status created = try_queue_pair(asked);
  if (created.code() == std::errc::invalid_argument && asked > 0) {
    // Devices do not report how much inline data they take: find out whether this was the reason for the refusal.
    const Status without = try_queue_pair(0);
    if (!without) return created;
    created = try_queue_pair(find_inline_limit(asked));
  }
  if (!created) return created;
  const std::uint32_t taken = std::min(asked, max_inline_bytes_);
  if (config_.max_inline_bytes && taken < asked) {
    return make_error(Errc::kBeyondDeviceLimit, device_.to_text() + " does not support max_inline_bytes " +
                                                    std::to_string(asked) + ": with " + sizes_text(config_) +
                                                    " it supports at most " + std::to_string(max_inline_bytes_));
  }
  config_.max_inline_bytes = static_cast<int>(taken);
  return {};
}

/// Creates qp_ and stores the granted inline limit; leaves qp_ empty on errors.
Status AdapterCore::try_queue_pair(std::uint32_t inline_bytes) {
  qp_.reset();
  ibv_qp_init_attr attributes = init_attributes(config_, send_cq_.get(), recv_cq_.get(),
                                                receives_ == nullptr ? nullptr : receives_->get(), inline_bytes);
  const auto created = verbs::from_null(device_.api().create_qp(pd(), &attributes),
                                        "create a queue pair on " + device_.to_text() + " with " + sizes_text(config_) +
                                            ", max_inline_bytes " + std::to_string(inline_bytes));
  if (!created) return created.status();
  qp_ = verbs::QpHandle(device_.api(), *created);
  max_inline_bytes_ = attributes.cap.max_inline_data;
  return {};
}

/// The most inline data that the device grants together with the other sizes: at least 0, and less than `refused`.
std::uint32_t AdapterCore::find_inline_limit(std::uint32_t refused) {
  std::uint32_t taken = 0;
  while (taken + 1 < refused) {
    const std::uint32_t middle = taken + (refused - taken) / 2;
    const bool good = try_queue_pair(middle).ok() && max_inline_bytes_ >= middle;
    (good ? taken : refused) = middle;
  }
  return taken;
}

Status AdapterCore::choose_pkey() {
  if (config_.pkey) {
    const auto found = device_.find_pkey(*config_.pkey);
    if (!found) return found.status();
    config_.pkey_index = found->index;
    address_.pkey = found->value;
    return {};
  }
  // Not every device has a table, so an index that the table does not have is passed to the device, which may refuse
  // it.
  const auto table = device_.pkeys();
  const auto found = std::ranges::find(table, config_.pkey_index, &DeviceCore::PKey::index);
  if (found != table.end()) address_.pkey = found->value;
  return {};
}

Status AdapterCore::use_gid(const GidEntry& gid) {
  if (state() != IBV_QPS_INIT) {
    return make_error(Errc::kWrongState, "a queue pair in state " + verbs::to_text(state()) + " cannot change its GID");
  }
  set_gid(gid);
  return {};
}

void AdapterCore::set_gid(const GidEntry& gid) {
  gid_index_ = gid.index;
  address_.gid_type = static_cast<std::uint8_t>(gid.type);
  address_.gid = gid.gid;
}

void AdapterCore::fill_address(const GidEntry& gid, std::uint32_t psn) {
  set_gid(gid);
  address_.qpn = qp_->qp_num;
  address_.psn = psn;
  address_.lid = device_.lid();
  address_.link_layer = device_.link_layer();
  address_.transport = device_.transport();
  address_.mtu_bytes = std::min(config_.mtu_bytes, device_.limits().mtu_bytes);
  address_.max_read_depth = static_cast<std::uint32_t>(*config_.max_read_depth_responder);
}

std::uint32_t AdapterCore::path_mtu_bytes() const noexcept {
  return remote_ ? std::min(address_.mtu_bytes, remote_->mtu_bytes) : 0;
}

Status AdapterCore::connect(const QpAddress& remote) {
  const QpPath path{.local = address_, .remote = remote, .gid_index = gid_index_, .port = device_.port()};
  const std::string ends = "; local: " + address_.to_text() + "; peer: " + remote.to_text();
  if (Status status = path.check_compatible(); !status.ok()) return status;
  for (const QpTransition& transition : {QpTransition::to_rtr(config_, path), QpTransition::to_rts(config_, path)}) {
    if (Status status = apply(transition); !status.ok()) {
      return make_error(status.error().code, status.error().context + ends);
    }
  }
  remote_ = remote;
  RDMACOMM_VLOG(1) << "connected " << address_.to_text() << " to " << remote.to_text() << ", path MTU "
                   << path_mtu_bytes();
  return {};
}

Status AdapterCore::connect(const QpAddress& remote, std::unique_ptr<verbs::QueuePairLink> link) {
  const QpPath path{.local = address_, .remote = remote, .gid_index = gid_index_, .port = device_.port()};
  if (Status status = path.check_compatible(); !status.ok()) return status;
  if (state() != IBV_QPS_INIT) {
    return make_error(Errc::kWrongState, "a queue pair in state " + verbs::to_text(state()) + " cannot be connected");
  }
  link_ = std::move(link);
  if (Status status = connect_by_link(path); !status.ok()) {
    const std::string ends = "; local: " + address_.to_text() + "; peer: " + remote.to_text();
    return make_error(status.error().code, status.error().context + ends);
  }
  remote_ = remote;
  RDMACOMM_VLOG(1) << "connected " << address_.to_text() << " to " << remote.to_text() << " by rdma_cm";
  return {};
}

Status AdapterCore::connect_by_link(const QpPath& path) {
  QpTransition to_rtr = QpTransition::to_rtr(config_, path);
  QpTransition to_rts = QpTransition::to_rts(config_, path);
  Status status = link_->begin({.initiator_depth = to_rts.attributes.max_rd_atomic,
                                .responder_resources = to_rtr.attributes.max_dest_rd_atomic,
                                .retry_count = config_.retry_count,
                                .rnr_retry = config_.rnr_retry,
                                .traffic_class = config_.traffic_class});
  if (status && !link_->device_moves_queue_pair()) status = follow_partition();
  for (QpTransition* transition : {&to_rtr, &to_rts}) {
    if (!status || link_->device_moves_queue_pair()) break;
    ibv_qp_attr managed{};
    status = link_->attributes(transition->to, managed);
    if (status) transition->follow(managed);
    if (status) status = apply(*transition);
  }
  if (status) status = link_->finish();
  if (status) state_.store(IBV_QPS_RTS, std::memory_order_relaxed);
  return status;
}

/// A connection manager uses the partition of the interface that the addresses belong to.
Status AdapterCore::follow_partition() {
  ibv_qp_attr managed{};
  Status status = link_->attributes(IBV_QPS_INIT, managed);
  if (!status || managed.pkey_index == config_.pkey_index) return status;
  if (config_.pkey) {
    return make_error(Errc::kInvalidArgument,
                      "rdma_cm connects with P_Key index " + std::to_string(managed.pkey_index) + ", but P_Key " +
                          verbs::pkey_text(*config_.pkey) + " (index " + std::to_string(config_.pkey_index) +
                          ") was requested: use IP addresses of interfaces in that partition");
  }
  config_.pkey_index = managed.pkey_index;
  status = choose_pkey();
  QpTransition again = QpTransition::to_init(config_, device_.port(), device_.limits().atomics);
  again.from = IBV_QPS_INIT;
  return status ? apply(again) : status;
}

Status AdapterCore::to_error() {
  return apply(QpTransition::to_error());
}

// The only function that changes the queue pair's state and state_.
Status AdapterCore::apply(const QpTransition& transition) {
  if (transition.from && *transition.from != state()) {
    return make_error(Errc::kWrongState, "a queue pair in state " + verbs::to_text(state()) +
                                             " cannot make the transition " + transition.to_text());
  }
  ibv_qp_attr attributes = transition.attributes;
  const std::string what =
      "move queue pair " + std::to_string(qp_->qp_num) + " of " + device_.to_text() + " " + transition.to_text();
  const Status moved = verbs::from_value(device_.api().modify_qp(qp_.get(), &attributes, transition.mask), what);
  if (!moved.ok()) {
    return make_error(moved.error().code, moved.error().context + ": " + cause_of(transition.to, moved.error().code));
  }
  state_.store(transition.to, std::memory_order_relaxed);
  RDMACOMM_VLOG(2) << "queue pair " << qp_->qp_num << " " << transition.to_text();
  return {};
}

Result<ibv_qp_state> AdapterCore::query_state() const {
  ibv_qp_attr attributes{};
  ibv_qp_init_attr init{};
  const int returned = device_.api().query_qp(qp_.get(), &attributes, IBV_QP_STATE, &init);
  const Status status = verbs::from_value(returned, "query queue pair " + std::to_string(qp_->qp_num));
  if (!status.ok()) return status.error();
  return attributes.qp_state;
}

}  // namespace rdmacomm
