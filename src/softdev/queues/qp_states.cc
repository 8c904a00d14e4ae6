// The life of a queue pair: creation, states and end.
#include <bit>
#include <cerrno>
#include <list>
#include <mutex>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/faults/device_faults.h"
#include "softdev/host/port_watch.h"
#include "softdev/host/target_route.h"
#include "softdev/local/link_terms.h"
#include "softdev/local/local_wire.h"
#include "softdev/local/peer_directory.h"
#include "softdev/local/xrc_wire.h"
#include "softdev/memory/stragglers.h"
#include "softdev/queues/datagram_wire.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/qp_moves.h"
#include "softdev/queues/queue_pairs.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/shared/hazard.h"
#include "softdev/tcp/tcp_service.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::uint32_t kPsnMask = 0xffffff;

std::uint32_t queue_entries(std::uint32_t depth) {
  return std::bit_ceil(depth == 0 ? 1 : depth);
}

FaultTransport transport_of(const ibv_qp_init_attr& init) noexcept {
  switch (init.qp_type) {
    case IBV_QPT_RC: return kOnRc;
    case IBV_QPT_UC: return kOnUc;
    case IBV_QPT_UD: return kOnUd;
    default: return kOnXrc;
  }
}

/// A kXrcQueue is no queue pair for the application, so it is not counted.
std::unique_ptr<QpFaults> faults_of(const Premises& premises, const QpKind& kind, const ibv_qp_init_attr& init) {
  if (premises.faults == nullptr || kind.service == Service::kXrcQueue) return nullptr;
  return premises.faults->of_next_queue_pair(transport_of(init));
}

template <typename Kind>
std::unique_ptr<Wire> connected(std::unique_ptr<Kind> wire, int& error) {
  error = wire->connect();
  return error == 0 ? std::move(wire) : nullptr;
}

std::size_t view_bytes(const ibv_qp_init_attr& init) noexcept {
  return QpView::bytes(SoftQp::recv_entries(init), init.cap.max_recv_sge);
}

/// The address in the block at which its queue pair begins. Blocks begin at pages, so the first lines of all blocks would
/// have the same place in a cache, which has room for few of them: a poll of 1,024 queue pairs would read all lines from
/// a slower cache. So queue pairs begin at different lines of their first page.
std::byte* start_of(const SharedBlock& block, std::size_t bytes) noexcept {
  constexpr std::size_t kLine = alignof(QpShared);
  const std::size_t possible = std::min((block.mapping.size() - bytes) / kLine + 1, kPage / kLine);
  return block.mapping.data() + block.offset / kPage % possible * kLine;
}

}  // namespace

std::shared_ptr<SoftQp> SoftQp::create(const Premises& premises, const QpKind& kind, const ibv_qp_init_attr& init) {
  if (const int error = premises.threads.start(); error != 0) {
    errno = error;
    return nullptr;
  }
  SharedBlock block = premises.segment.allocate(view_bytes(init));
  if (block.mapping.empty()) return nullptr;
  UniqueFd listener;
  const std::uint32_t qpn = premises.queue_pairs.take_number(premises.tcp_use != TcpUse::kNever, listener);
  if (qpn == 0) {
    const int reason = errno;
    premises.segment.free(std::move(block));
    errno = reason;
    return nullptr;
  }
  auto qp = std::make_shared<SoftQp>(premises, std::move(block), qpn, kind, init);
  premises.queue_pairs.insert(qp);
  if (listener) premises.threads.serve(std::move(listener));
  return qp;
}

SoftQp::SoftQp(const Premises& premises, SharedBlock block, std::uint32_t qpn, const QpKind& kind,
               const ibv_qp_init_attr& init)
    : QpEx{},
      registrations_(premises.local.registrations),
      premises_(premises),
      late_(premises.late),
      faults_(faults_of(premises, kind, init)),
      can_fail_(faults_ != nullptr || (premises.faults != nullptr && premises.faults->has_link_faults())),
      service_(kind.service),
      block_(std::move(block)),
      view_(start_of(block_, view_bytes(init)), recv_entries(init), init.cap.max_recv_sge),
      pd_number_(kind.pd_number),
      xrc_domain_(kind.xrc_domain),
      capabilities_(init.cap),
      signal_all_(init.sq_sig_all != 0),
      send_queue_(SoftCq::from(init.send_cq)),
      recv_queue_(SoftCq::from(init.recv_cq)),
      srq_(init.srq == nullptr ? nullptr : &SoftSrq::from(init.srq)),
      send_lock_(premises_.local.membarrier),
      sends_(queue_entries(init.cap.max_send_wr)),
      send_mask_(queue_entries(init.cap.max_send_wr) - 1),
      receives_(recv_entries(init), init.cap.max_recv_sge),
      tcp_(*this, {qpn, kind.pd_number, *view_.shared, recv_polled_, send_lock_}) {
  qp_base.context = &premises_.verbs;
  qp_base.qp_context = init.qp_context;
  qp_base.send_cq = init.send_cq;
  qp_base.recv_cq = init.recv_cq;
  qp_base.srq = init.srq;
  qp_base.qp_num = qpn;
  qp_base.handle = qpn;
  qp_base.qp_type = init.qp_type;
  qp_base.state = IBV_QPS_RESET;
  pthread_mutex_init(&qp_base.mutex, nullptr);
  pthread_cond_init(&qp_base.cond, nullptr);
  attributes_.qp_state = IBV_QPS_RESET;
  view_.shared->recv_floor.store(UINT32_MAX, std::memory_order_relaxed);
  view_.shared->life.store(1, std::memory_order_relaxed);
  view_.shared->membarrier.store(premises_.local.membarrier ? 1 : 0, std::memory_order_relaxed);
}

SoftQp::~SoftQp() {
  premises_.local.traffic.release(traffic_);
  premises_.segment.free(std::move(block_));
}

std::uint32_t SoftQp::recv_entries(const ibv_qp_init_attr& init) noexcept {
  return init.srq == nullptr ? queue_entries(init.cap.max_recv_wr) : SoftSrq::from(init.srq).entry_count();
}

int SoftQp::modify(const ibv_qp_attr& attributes, int named) {
  const int mask = without_ignored(named, qp_base.qp_type);
  int error = 0;
  bool to_reset = false;
  {
    const std::scoped_lock guard(send_lock_);
    const ibv_qp_state from = state_.load(std::memory_order_relaxed);
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : from;
    if ((mask & IBV_QP_PORT) != 0 && !premises_.identity.has_port(attributes.port_num)) return EINVAL;
    error = check_move(qp_base.qp_type, from, to, attributes, mask);
    if (error != 0) return error;
    if (to == IBV_QPS_ERR) {
      enter_error_locked();
      return 0;
    }
    to_reset = to == IBV_QPS_RESET;
    const ibv_qp_attr before = attributes_;
    if (!to_reset) store_attributes(attributes, mask);
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) error = to_rtr(attributes);
    if (from == IBV_QPS_SQD && (mask & IBV_QP_AV) != 0) error = change_path(attributes);
    if (error != 0) {
      attributes_ = before;  // a call that fails changes nothing
      publish_attributes();
      return error;
    }
    if (to == IBV_QPS_RTS && from == IBV_QPS_RTR) begin_requests();
    state_.store(to, std::memory_order_relaxed);
    qp_base.state = attributes_.qp_state = to;
    if (to == IBV_QPS_SQD && from == IBV_QPS_RTS) drain((mask & IBV_QP_EN_SQD_ASYNC_NOTIFY) != 0);
    if (to == IBV_QPS_RTS) draining_ = 0;
    if (TcpWire* const wire = tcp_.wire()) {
      wire->begin(sending_.psn, attributes_.max_rd_atomic);
      wire->advance();  // connects now, so that the first request need not wait
    }
    const std::uint32_t reported = send_reported_;
    if (to == IBV_QPS_RTS && !pending_.empty()) retry_pending_locked();
    notify_sender(reported);
  }
  return to_reset ? reset() : 0;
}

void SoftQp::store_attributes(const ibv_qp_attr& a, int mask) {
  const auto take = [&](int bit, auto member) {
    if ((mask & bit) != 0) attributes_.*member = a.*member;
  };
  take(IBV_QP_PKEY_INDEX, &ibv_qp_attr::pkey_index);
  take(IBV_QP_PORT, &ibv_qp_attr::port_num);
  take(IBV_QP_ACCESS_FLAGS, &ibv_qp_attr::qp_access_flags);
  take(IBV_QP_AV, &ibv_qp_attr::ah_attr);
  take(IBV_QP_PATH_MTU, &ibv_qp_attr::path_mtu);
  take(IBV_QP_DEST_QPN, &ibv_qp_attr::dest_qp_num);
  take(IBV_QP_RQ_PSN, &ibv_qp_attr::rq_psn);
  take(IBV_QP_SQ_PSN, &ibv_qp_attr::sq_psn);
  take(IBV_QP_MAX_DEST_RD_ATOMIC, &ibv_qp_attr::max_dest_rd_atomic);
  take(IBV_QP_MAX_QP_RD_ATOMIC, &ibv_qp_attr::max_rd_atomic);
  take(IBV_QP_MIN_RNR_TIMER, &ibv_qp_attr::min_rnr_timer);
  take(IBV_QP_TIMEOUT, &ibv_qp_attr::timeout);
  take(IBV_QP_RETRY_CNT, &ibv_qp_attr::retry_cnt);
  take(IBV_QP_RNR_RETRY, &ibv_qp_attr::rnr_retry);
  take(IBV_QP_QKEY, &ibv_qp_attr::qkey);
  take(IBV_QP_EN_SQD_ASYNC_NOTIFY, &ibv_qp_attr::en_sqd_async_notify);
  publish_attributes();
}

void SoftQp::publish_attributes() noexcept {
  QpShared& shared = *view_.shared;
  shared.access.store(attributes_.qp_access_flags, std::memory_order_relaxed);
  shared.rnr_timer.store(attributes_.min_rnr_timer, std::memory_order_relaxed);
  shared.max_dest_rd.store(attributes_.max_dest_rd_atomic, std::memory_order_relaxed);
  shared.qkey.store(attributes_.qkey, std::memory_order_relaxed);
  shared.path_mtu.store(128U << attributes_.path_mtu, std::memory_order_relaxed);
}

LocalEnd SoftQp::own_end() noexcept {
  return {&premises_.local, number(), pd_number_, 128U << attributes_.path_mtu,
          service_,         nullptr,  false,      attributes_.max_dest_rd_atomic};
}

DatagramWire* SoftQp::datagram_wire() noexcept {
  return service_ == Service::kDatagram ? static_cast<DatagramWire*>(wire_.get()) : nullptr;
}

/// The wire to the queue pair in the attributes.
std::unique_ptr<Wire> SoftQp::make_wire(int& error) {
  const LocalEnd own = own_end();
  const std::uint32_t target = attributes_.dest_qp_num;
  if (service_ == Service::kXrc) return connected(std::make_unique<XrcWire>(own, target), error);
  return connected(std::make_unique<LocalWire>(own, target), error);
}

int SoftQp::to_rtr(const ibv_qp_attr& a) {
  if (service_ == Service::kDatagram) {
    if (premises_.tcp_use != TcpUse::kNever) {
      if (const int error = premises_.tcp.serve_everywhere(qp_base.qp_num); error != 0) return error;
    }
    wire_ = std::make_unique<DatagramWire>(premises_, LocalEnd{&premises_.local, qp_base.qp_num, pd_number_,
                                                               kPortMtuBytes, service_, &view_.shared->qkey});
    if (const int error = choose_cell(); error != 0) return error;
    open_link(link_word(qp_base.qp_num, 0, service_));
    return 0;
  }
  const DeviceIdentity& identity = premises_.identity;
  const TcpUse tcp_use = premises_.tcp_use;
  std::vector<ibv_gid_entry> table;
  std::vector<ibv_gid_entry> host;
  int error = premises_.port.gids(table, &host);
  if (error == 0) error = find_route(identity, table, host, a.ah_attr, tcp_use, route_);
  if (error == 0) sending_ = sending_terms(identity, table, attributes_.port_num, a.ah_attr);
  sending_.peer_qpn = number();
  const bool only_receives = qp_base.qp_type == IBV_QPT_XRC_RECV;
  if (error == 0 && route_.by_memory) {
    if (!premises_.queue_pairs.has_name(number())) {
      error = EPERM;  // the peer cannot find this one through memory, and both ends must use the same path
    } else if (only_receives) {
      int reason = 0;
      const auto peer = premises_.local.peers.get(attributes_.dest_qp_num, reason);
      error = reason == EPERM || reason == EPROTO ? reason : 0;
    } else {
      wire_ = make_wire(error);
    }
    // TCP can be used if the two processes must not share memory.
    if (error == EPERM && tcp_use != TcpUse::kNever) {
      route_ = loopback_route();
      error = 0;
    }
  }
  if (error == 0 && !route_.by_memory) error = connect_by_tcp();
  if (error == 0) error = choose_cell();
  if (error != 0) return error;
  if (qp_base.qp_type == IBV_QPT_XRC_SEND) {
    open_link(0);
    return 0;
  }
  view_.shared->awaits_first.store(1, std::memory_order_relaxed);
  accept_from_peer();
  return 0;
}

std::uint32_t SoftQp::counted_life() const noexcept {
  return has_psn(service_) ? view_.shared->life.load(std::memory_order_relaxed) : 0;
}

/// The terms of requests from its peer.
LinkTerms SoftQp::receiving_terms() const noexcept {
  LinkTerms terms;
  terms.source = sending_.target;
  terms.target = sending_.source;
  terms.gid_type = sending_.gid_type;
  terms.source_lid = sending_.target_lid;
  terms.target_lid = sending_.source_lid;
  terms.psn = has_psn(service_) ? attributes_.rq_psn & kPsnMask : 0;
  terms.peer_qpn = attributes_.dest_qp_num;
  return terms;
}

void SoftQp::accept_from_peer() noexcept {
  QpShared& shared = *view_.shared;
  const LinkTerms terms = receiving_terms();
  publish_terms(shared, terms);
  const std::uint32_t peer = attributes_.dest_qp_num;
  initiator_qpn_.store(peer, std::memory_order_release);
  open_link(route_.by_memory ? link_word(number(), peer, service_, terms, counted_life())
                             : link_word_by_tcp(number(), peer, service_, terms.psn));
}

/// RTS: requests can be sent, and no longer show that the connection is established.
void SoftQp::begin_requests() noexcept {
  view_.shared->awaits_first.store(0, std::memory_order_relaxed);
  sending_.psn = has_psn(service_) ? attributes_.sq_psn & kPsnMask : 0;
  if (wire_ != nullptr) wire_->begin(sending_, counted_life());
}

void SoftQp::note_contact() noexcept {
  if (state_.load(std::memory_order_relaxed) != IBV_QPS_RTR) return;
  const std::uint32_t life = view_.shared->life.load(std::memory_order_relaxed);
  if (contact_life_.exchange(life, std::memory_order_relaxed) != life) raise(IBV_EVENT_COMM_EST);
}

/// In SQD: another path to the same queue pair. Its peer must change its own, too.
int SoftQp::change_path(const ibv_qp_attr& a) {
  std::vector<ibv_gid_entry> table;
  std::vector<ibv_gid_entry> host;
  Route route;
  int error = premises_.port.gids(table, &host);
  if (error == 0) error = find_route(premises_.identity, table, host, a.ah_attr, premises_.tcp_use, route);
  if (error != 0) return error;
  // A connection over TCP keeps its addresses.
  const bool is_by_memory = wire_ != nullptr && route_.by_memory && route.by_memory;
  if (!is_by_memory) return route == route_ ? 0 : EINVAL;
  const std::uint32_t psn = sending_.psn;
  sending_ = sending_terms(premises_.identity, table, attributes_.port_num, a.ah_attr);
  sending_.peer_qpn = number();
  sending_.psn = psn;
  wire_->begin(sending_, counted_life());
  if (qp_base.qp_type != IBV_QPT_XRC_SEND) accept_from_peer();
  return 0;
}

/// SQD: no further request begins. The requests that have begun are completed.
void SoftQp::drain(bool notify) noexcept {
  const bool first_has_begun = !pending_.empty() && waiting_for_ != ExecOutcome::kDone;
  draining_ = tcp_.wire() != nullptr ? tcp_.wire()->under_way() : static_cast<std::size_t>(first_has_begun);
  notifies_when_drained_ = notify && attributes_.en_sqd_async_notify != 0;
  if (draining_ == 0) note_drained();
}

void SoftQp::note_drained() noexcept {
  if (std::exchange(notifies_when_drained_, false)) raise(IBV_EVENT_SQ_DRAINED);
}

/// Accepts requests with this link word from now on, unless the port is down. 0: it only sends.
void SoftQp::open_link(std::uint64_t word) noexcept {
  link_word_ = word;
  port_is_up_ = premises_.port.is_up();
  keeps_all_ = keeps_all_ || !port_is_up_;
  publish_link();
}

/// The kernel stops and continues TCP connections of other hosts itself.
void SoftQp::publish_link() noexcept {
  if (link_word_ == 0) return;
  const bool is_within_host = route_.by_memory || verbs::equal(route_.source, route_.target);
  view_.shared->link.store(port_is_up_ || !is_within_host ? link_word_ : 0, std::memory_order_release);
}

void SoftQp::follow_port_locked() noexcept {
  const ibv_qp_state state = state_.load(std::memory_order_relaxed);
  if (state != IBV_QPS_RTR && state != IBV_QPS_RTS && state != IBV_QPS_SQD && state != IBV_QPS_SQE) return;
  TcpWire* const by_tcp = tcp_.wire();
  keeps_all_ = late_ || by_tcp != nullptr || !port_is_up_;
  publish_link();
  if (by_tcp != nullptr && port_is_up_) by_tcp->advance();
  if (!pending_.empty()) premises_.threads.wake_retrier();
}

void SoftQp::set_port_up(bool up) {
  const std::scoped_lock guard(send_lock_);
  port_is_up_ = up;
  follow_port_locked();
}

int SoftQp::choose_cell() {
  Traffic& traffic = premises_.local.traffic;
  const std::uint32_t target = wire_ == nullptr ? TrafficCell::kElsewhere : wire_->target_device();
  packet_bytes_ = service_ == Service::kDatagram ? kPortMtuBytes : 128U << attributes_.path_mtu;
  if (traffic_ != nullptr && traffic_->target == target) return 0;
  TrafficCell* const chosen = traffic.take(target);
  if (chosen == nullptr) return ENOMEM;
  traffic.release(std::exchange(traffic_, chosen));
  return 0;
}

int SoftQp::connect_by_tcp() {
  const bool sends = qp_base.qp_type != IBV_QPT_XRC_RECV;
  const int error = tcp_.connect_locked(route_, attributes_.dest_qp_num, sends);
  if (error == 0 && sends) keeps_all_ = true;
  return error;
}

void SoftQp::enter_error() {
  const std::scoped_lock guard(send_lock_);
  fail_locked();
}

void SoftQp::lose_completions() {
  const std::scoped_lock guard(send_lock_);
  const ibv_qp_state state = state_.load(std::memory_order_relaxed);
  if (state == IBV_QPS_ERR || state == IBV_QPS_RESET) return;  // in RESET: see fail_locked()
  enter_error_locked();
  if (service_ != Service::kXrcQueue) raise(IBV_EVENT_QP_FATAL);  // for the application, a kXrcQueue is no queue pair
}

void SoftQp::fail_if_requested() noexcept {
  if (failed_life_.load(std::memory_order_relaxed) == 0) return;
  const std::uint32_t failed = failed_life_.exchange(0, std::memory_order_acquire);
  const std::scoped_lock guard(send_lock_);
  if (view_.shared->life.load(std::memory_order_relaxed) == failed) fail_locked();
}

/// A failure on the way to RESET belongs to the old life and must not end the next one.
void SoftQp::fail_locked() noexcept {
  if (state_.load(std::memory_order_relaxed) != IBV_QPS_RESET) enter_error_locked();
}

/// Before the state changes.
void SoftQp::stamp_failure() noexcept {
  const std::uint64_t stamp = recv_queue_.draw_failure_stamp();
  failure_stamp_.store(stamp, std::memory_order_relaxed);
  posted_late_stamp_.store(stamp, std::memory_order_relaxed);
  posted_at_failure_.store(recv_posted_.load(std::memory_order_relaxed), std::memory_order_relaxed);
}

void SoftQp::enter_error_locked() noexcept {
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  stamp_failure();
  end_link(*view_.shared, state_, await_visibility);
  recv_queue_.note_failure();
  qp_base.state = attributes_.qp_state = IBV_QPS_ERR;
  if (initiators_.is_busy()) {
    premises_.stragglers.suspect(as_initiator_target());
    premises_.threads.wake_retrier();
  }
  flush_pending();
  send_queue_.notify(true);
  recv_queue_.notify(true);
  if (service_ == Service::kXrcQueue) return srq_->raise(IBV_EVENT_SRQ_ERR);
  if (srq_ != nullptr) raise(IBV_EVENT_QP_LAST_WQE_REACHED);
}

void SoftQp::accept_from_all() {
  attributes_.qp_access_flags = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
  attributes_.max_dest_rd_atomic = 1;
  attributes_.path_mtu = IBV_MTU_4096;
  publish_attributes();  // the queue pair of each message has its own rules
  state_.store(IBV_QPS_RTR, std::memory_order_relaxed);
  view_.shared->link.store(link_word(qp_base.qp_num, 0, service_), std::memory_order_release);
}

/// A request has failed here. A reliable queue pair enters ERR; an unreliable one (SQE) continues to receive.
void SoftQp::fail_sends_locked() noexcept {
  if (is_reliable(service_)) return fail_locked();
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_RESET) return;
  state_.store(IBV_QPS_SQE, std::memory_order_seq_cst);
  qp_base.state = attributes_.qp_state = IBV_QPS_SQE;
  flush_pending();
}

int SoftQp::join(const ibv_gid& group) {
  if (service_ != Service::kDatagram) return EINVAL;
  bool is_new = false;
  if (const int error = groups_.join(qp_base.qp_num, group, is_new); error != 0) return error;
  // Without a network it is in the group of this host.
  if (is_new && groups_span_hosts(premises_)) (void)premises_.tcp.join_group(qp_base.qp_num, group);
  return 0;
}

int SoftQp::leave(const ibv_gid& group) {
  if (const int error = groups_.leave(group); error != 0) return error;
  premises_.tcp.leave_group(qp_base.qp_num, group);
  return 0;
}

int SoftQp::reset() {
  // While the queues are emptied, no poll, initiator or retry may access them.
  send_queue_.detach(*this);
  recv_queue_.detach(*this);
  view_.shared->link.store(0, std::memory_order_seq_cst);
  const bool idle = initiators_.wait_until_idle(QpInitiators::Wait::kBounded);
  if (idle) {
    forget_life();
  } else {
    stay_in_error();
  }
  premises_.tcp.forget_target(number(), true);
  send_queue_.attach_sender(*this);
  recv_queue_.attach_receiver(*this);
  if (idle) return 0;
  send_queue_.notify(true);
  recv_queue_.notify(true);
  return EBUSY;
}

void SoftQp::forget_life() {
  const std::scoped_lock guard(send_lock_, recv_lock_);
  view_.shared->life.fetch_add(1, std::memory_order_relaxed);
  return_shared_receives();
  wire_.reset();
  tcp_.forget_locked();
  keeps_all_ = late_ || can_fail_;
  draining_ = 0;
  is_ending_ = target_is_gone_ = false;
  target_frozen_until_ = {};
  pending_.clear();
  pending_count_.store(0, std::memory_order_relaxed);
  send_posted_ = 0;
  send_finished_.store(0, std::memory_order_relaxed);
  send_scanned_ = 0;
  send_freed_.store(0, std::memory_order_relaxed);
  recv_posted_.store(0, std::memory_order_relaxed);
  recv_polled_.store(0, std::memory_order_relaxed);
  for (std::uint32_t i = 0; i <= view_.mask; ++i) view_.slot(i).head.store({}, std::memory_order_relaxed);
  view_.shared->taken = view_.shared->posted_seen = 0;
  view_.shared->initiator_life.store(0, std::memory_order_relaxed);
  view_.shared->posted.store(0, std::memory_order_relaxed);
  view_.shared->recv_floor.store(UINT32_MAX, std::memory_order_relaxed);
  attributes_ = {};
  attributes_.qp_state = IBV_QPS_RESET;
}

/// Enters ERR instead of RESET, because the initiator may still fill a slot, and the message would appear in the next
/// life.
void SoftQp::stay_in_error() {
  const std::scoped_lock guard(send_lock_);
  stamp_failure();
  state_.store(IBV_QPS_ERR, std::memory_order_seq_cst);
  qp_base.state = attributes_.qp_state = IBV_QPS_ERR;
  flush_pending();
}

void SoftQp::raise(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = verbs();
  premises_.events.push(event, events);
}

void SoftQp::query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
  const std::scoped_lock guard(send_lock_);
  attributes = attributes_;
  attributes.cur_qp_state = attributes_.qp_state;
  attributes.sq_draining = attributes_.qp_state == IBV_QPS_SQD && draining_ != 0 ? 1 : 0;
  attributes.cap = capabilities_;
  init = {};
  init.qp_context = qp_base.qp_context;
  init.send_cq = qp_base.send_cq;
  init.recv_cq = qp_base.recv_cq;
  init.srq = qp_base.srq;
  init.cap = capabilities_;
  init.qp_type = qp_base.qp_type;
  init.sq_sig_all = signal_all_ ? 1 : 0;
}

void SoftQp::destroy() {
  initiators_.end_service();
  std::list<TcpDatagrams> unsent;
  {
    const std::scoped_lock guard(send_lock_);
    end_link(*view_.shared, state_, await_visibility);
    flush_pending();
    if (DatagramWire* const wire = datagram_wire()) unsent = wire->take_unsent();
    wire_.reset();
    tcp_.end_sends_locked();
  }
  if (!unsent.empty()) premises_.tcp.send_last(std::move(unsent));
  premises_.tcp.forget_target(qp_base.qp_num, false);
  send_queue_.detach(*this);
  recv_queue_.detach(*this);
  if (initiators_.wait_until_idle(QpInitiators::Wait::kUnlessByAddress)) return initiators_.settle_after_destruction();
  // It may still take receives that are posted later to a shared receive queue.
  if (srq_ == nullptr) premises_.stragglers.retire(initiators_);
}

}  // namespace rdmacomm::softdev