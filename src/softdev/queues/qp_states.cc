// The life of a queue pair: creation, its states, its end.
#include <fcntl.h>
#include <sched.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <mutex>
#include <thread>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/context/soft_context.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/target_route.h"
#include "softdev/local/local_wire.h"
#include "softdev/local/xrc_wire.h"
#include "softdev/queues/datagram_wire.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/queues/soft_xrcd.h"
#include "softdev/shared/hazard.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

/// A move of a queue pair and the attributes that it needs and allows. Source: ibv_modify_qp(3).
struct Move {
  ibv_qp_state from;
  ibv_qp_state to;
  int required;
  int optional;
};

constexpr int kRtrRequired =
    IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
constexpr int kRtsRequired =
    IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC;
constexpr int kInitRequired = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS;
// What the standard allows besides and this device does not have is refused: alternate paths, an event when the send
// queue has drained, another address in SQD.
constexpr int kRtsOptional = IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS | IBV_QP_MIN_RNR_TIMER;
// What these moves have of acknowledgements, retries and READs is RC's alone.
constexpr int kOfRcAlone = IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MIN_RNR_TIMER |
                           IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC;

constexpr std::array<Move, 10> kMoves = {{
    {IBV_QPS_RESET, IBV_QPS_INIT, kInitRequired, 0},
    {IBV_QPS_INIT, IBV_QPS_INIT, 0, kInitRequired},
    {IBV_QPS_INIT, IBV_QPS_RTR, kRtrRequired, IBV_QP_ACCESS_FLAGS | IBV_QP_PKEY_INDEX},
    {IBV_QPS_RTR, IBV_QPS_RTS, kRtsRequired, kRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_RTS, 0, kRtsOptional},
    {IBV_QPS_RTS, IBV_QPS_SQD, 0, IBV_QP_CUR_STATE},
    {IBV_QPS_SQD, IBV_QPS_RTS, 0, kRtsOptional},
    {IBV_QPS_SQE, IBV_QPS_RTS, 0, IBV_QP_CUR_STATE | IBV_QP_ACCESS_FLAGS},
    {IBV_QPS_SQD, IBV_QPS_SQD, 0,
     IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC | IBV_QP_MAX_DEST_RD_ATOMIC |
         IBV_QP_PKEY_INDEX | kRtsOptional},
    {IBV_QPS_RESET, IBV_QPS_RESET, 0, 0},
}};

/// Whether each value that `mask` names is in its range.
bool values_valid(const ibv_qp_attr& a, int mask) {
  const auto in_mask = [mask](int bit) { return (mask & bit) != 0; };
  if (in_mask(IBV_QP_PORT) && a.port_num != 1) return false;
  if (in_mask(IBV_QP_PKEY_INDEX) && a.pkey_index != 0) return false;
  if (in_mask(IBV_QP_PATH_MTU) && (a.path_mtu < IBV_MTU_256 || a.path_mtu > IBV_MTU_4096)) return false;
  if (in_mask(IBV_QP_DEST_QPN) && a.dest_qp_num > 0xffffff) return false;
  if (in_mask(IBV_QP_MIN_RNR_TIMER) && a.min_rnr_timer > 31) return false;
  if (in_mask(IBV_QP_TIMEOUT) && a.timeout > 31) return false;
  if (in_mask(IBV_QP_RETRY_CNT) && a.retry_cnt > 7) return false;
  if (in_mask(IBV_QP_RNR_RETRY) && a.rnr_retry > 7) return false;
  if (in_mask(IBV_QP_MAX_QP_RD_ATOMIC) && a.max_rd_atomic > kMaxReadDepth) return false;
  return !in_mask(IBV_QP_MAX_DEST_RD_ATOMIC) || a.max_dest_rd_atomic <= kMaxReadDepth;
}

/// The attributes among `mask` that queue pairs of this kind have. Datagrams have a Q_Key where others have access flags,
/// and nothing that belongs to a connection.
/// An XRC queue pair has those of its direction; source: the table in Linux's drivers/infiniband/core/verbs.c.
int of_type(int mask, ibv_qp_type type) {
  constexpr int kOfDatagrams = IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_SQ_PSN | IBV_QP_CUR_STATE;
  if (type == IBV_QPT_RC) return mask;
  if (type == IBV_QPT_XRC_SEND) return mask & ~(IBV_QP_MIN_RNR_TIMER | IBV_QP_MAX_DEST_RD_ATOMIC);
  if (type == IBV_QPT_XRC_RECV) return mask & ~(IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC);
  if (type == IBV_QPT_UC) return mask & ~kOfRcAlone;
  return (mask & kOfDatagrams) | ((mask & IBV_QP_ACCESS_FLAGS) != 0 ? IBV_QP_QKEY : 0);
}

/// A mask without the attributes of the direction that an XRC queue pair does not have: programs name them all the same
/// (perftest does), and the kernel takes them out. Source: modify_qp_mask() in Linux's drivers/infiniband/core/uverbs_cmd.c.
int without_ignored(int mask, ibv_qp_type type) {
  return type == IBV_QPT_XRC_SEND || type == IBV_QPT_XRC_RECV ? of_type(mask, type) : mask;
}

std::uint32_t queue_entries(std::uint32_t depth) {
  return std::bit_ceil(depth == 0 ? 1 : depth);
}

template <typename Kind>
std::unique_ptr<Wire> connected(std::unique_ptr<Kind> wire, int& error) {
  error = wire->connect();
  return error == 0 ? std::move(wire) : nullptr;
}

}  // namespace

std::shared_ptr<SoftQp> SoftQp::create(SoftContext& soft, const QpKind& kind, const ibv_qp_init_attr& init) {
  if (const int error = soft.ensure_threads(); error != 0) {
    errno = error;
    return nullptr;
  }
  SharedBlock block = soft.segment().allocate(QpView::bytes(recv_entries(init), init.cap.max_recv_sge));
  if (block.mapping.empty()) return nullptr;
  UniqueFd listener;
  const std::uint32_t qpn = soft.queue_pairs().take_number(soft.tcp_use() != TcpUse::kNever, listener);
  if (qpn == 0) {
    const int reason = errno;
    soft.segment().free(std::move(block));
    errno = reason;
    return nullptr;
  }
  auto qp = std::make_shared<SoftQp>(soft, std::move(block), qpn, kind, init);
  soft.queue_pairs().insert(qp);
  if (listener) soft.server().add_listener(std::move(listener));
  return qp;
}

SoftQp::SoftQp(SoftContext& context_, SharedBlock block, std::uint32_t qpn, const QpKind& kind,
               const ibv_qp_init_attr& init)
    : ibv_qp_ex{},
      soft_context_(context_),
      late_(context_.lateness().count() != 0),
      service_(kind.service),
      block_(std::move(block)),
      view_(block_.mapping.data(), recv_entries(init), init.cap.max_recv_sge),
      pd_number_(kind.pd_number),
      xrc_domain_(kind.xrc_domain),
      capabilities_(init.cap),
      signal_all_(init.sq_sig_all != 0),
      send_queue_(SoftCq::from(init.send_cq)),
      recv_queue_(SoftCq::from(init.recv_cq)),
      srq_(init.srq == nullptr ? nullptr : &SoftSrq::from(init.srq)),
      send_lock_(soft_context_.membarrier()),
      served_srq_(srq_),
      sends_(queue_entries(init.cap.max_send_wr)),
      send_mask_(queue_entries(init.cap.max_send_wr) - 1),
      receives_(recv_entries(init), init.cap.max_recv_sge) {
  qp_base.context = soft_context_.verbs();
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
  view_.shared->membarrier.store(soft_context_.membarrier() ? 1 : 0, std::memory_order_relaxed);
}

SoftQp::~SoftQp() {
  soft_context_.segment().free(std::move(block_));
}

std::uint32_t SoftQp::recv_entries(const ibv_qp_init_attr& init) noexcept {
  return init.srq == nullptr ? queue_entries(init.cap.max_recv_wr) : SoftSrq::from(init.srq).entry_count();
}

int SoftQp::check_modify(const ibv_qp_attr& attributes, int mask, ibv_qp_state from, ibv_qp_state to) const {
  const int given = mask & ~IBV_QP_STATE;
  if ((mask & IBV_QP_CUR_STATE) != 0 && attributes.cur_qp_state != from) return EINVAL;
  if (to == IBV_QPS_ERR || to == IBV_QPS_RESET) return (given & ~IBV_QP_CUR_STATE) == 0 ? 0 : EINVAL;
  for (const Move& move : kMoves) {
    if (move.from != from || move.to != to) continue;
    const int required = of_type(move.required, qp_base.qp_type);
    const int optional = of_type(move.optional, qp_base.qp_type);
    const bool complete = (given & required) == required;
    const bool nothing_else = (given & ~(required | optional)) == 0;
    return complete && nothing_else && values_valid(attributes, mask) ? 0 : EINVAL;
  }
  return EINVAL;
}

int SoftQp::modify(const ibv_qp_attr& attributes, int named) {
  const int mask = without_ignored(named, qp_base.qp_type);
  int error = 0;
  bool to_reset = false;
  {
    const std::scoped_lock guard(send_lock_);
    const ibv_qp_state from = state_.load(std::memory_order_relaxed);
    const ibv_qp_state to = (mask & IBV_QP_STATE) != 0 ? attributes.qp_state : from;
    error = check_modify(attributes, mask, from, to);
    if (error != 0) return error;
    if (to == IBV_QPS_ERR) {
      enter_error_locked();
      return 0;
    }
    to_reset = to == IBV_QPS_RESET;
    const ibv_qp_attr before = attributes_;
    if (!to_reset) store_attributes(attributes, mask);
    if (to == IBV_QPS_RTR && from == IBV_QPS_INIT) error = to_rtr(attributes);
    if (error != 0) {
      attributes_ = before;  // a call that fails changes nothing
      publish_attributes();
      return error;
    }
    state_.store(to, std::memory_order_relaxed);
    qp_base.state = attributes_.qp_state = to;
    if (tcp_ != nullptr) tcp_->advance();  // connects, so that the first request need not wait
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
  return {&soft_context_, qp_base.qp_num, pd_number_, 128U << attributes_.path_mtu, service_, nullptr};
}

/// To the queue pair that the attributes name.
std::unique_ptr<Wire> SoftQp::make_wire(int& error) {
  const LocalEnd own = own_end();
  const std::uint32_t target = attributes_.dest_qp_num;
  if (service_ == Service::kXrc) return connected(std::make_unique<XrcWire>(own, target), error);
  return connected(std::make_unique<LocalWire>(own, target), error);
}

int SoftQp::to_rtr(const ibv_qp_attr& a) {
  if (service_ == Service::kDatagram) {
    if (soft_context_.tcp_use() != TcpUse::kNever) {
      if (const int error = soft_context_.tcp().serve_everywhere(qp_base.qp_num); error != 0) return error;
    }
    wire_ = std::make_unique<DatagramWire>(
        LocalEnd{&soft_context_, qp_base.qp_num, pd_number_, kPortMtuBytes, service_, &view_.shared->qkey});
    view_.shared->link.store(link_word(qp_base.qp_num, 0, service_), std::memory_order_release);
    return 0;
  }
  const DeviceIdentity& identity = soft_context_.identity();
  const TcpUse tcp_use = soft_context_.tcp_use();
  std::vector<ibv_gid_entry> table;
  int error = soft_context_.gid_table(table);
  if (error == 0) error = find_route(identity, table, a.ah_attr, tcp_use, route_);
  const bool only_receives = qp_base.qp_type == IBV_QPT_XRC_RECV;
  if (error == 0 && route_.by_memory) {
    if (!soft_context_.queue_pairs().has_name(number())) {
      error = EPERM;  // the peer does not find this one by memory, and both go the same way
    } else if (only_receives) {
      int reason = 0;
      const auto peer = soft_context_.peers().get(attributes_.dest_qp_num, reason);
      error = reason == EPERM || reason == EPROTO ? reason : 0;
    } else {
      wire_ = make_wire(error);
    }
    // A process that is not to be shared memory with may still receive by TCP.
    if (error == EPERM && tcp_use != TcpUse::kNever) {
      route_ = loopback_route();
      error = 0;
    }
  }
  if (error == 0 && !route_.by_memory) error = connect_by_tcp();
  if (error != 0 || qp_base.qp_type == IBV_QPT_XRC_SEND) return error;
  initiator_qpn_.store(attributes_.dest_qp_num, std::memory_order_release);
  view_.shared->link.store(link_word(qp_base.qp_num, attributes_.dest_qp_num, service_, !route_.by_memory),
                           std::memory_order_release);
  return 0;
}

int SoftQp::connect_by_tcp() {
  if (const int error = soft_context_.tcp().serve(qp_base.qp_num, route_.source); error != 0) return error;
  if (const int error = pairing_.begin(route_.target, attributes_.dest_qp_num); error != 0) return error;
  goes_by_tcp_.store(true, std::memory_order_release);
  if (qp_base.qp_type == IBV_QPT_XRC_RECV) return 0;  // it only receives
  tcp_ = std::make_unique<TcpWire>(own_end(), route_, attributes_.dest_qp_num, pairing_);
  keeps_all_ = true;
  return 0;
}

void SoftQp::enter_error() {
  const std::scoped_lock guard(send_lock_);
  fail_locked();
}

void SoftQp::lose_completions() {
  const std::scoped_lock guard(send_lock_);
  const ibv_qp_state state = state_.load(std::memory_order_relaxed);
  if (state == IBV_QPS_ERR || state == IBV_QPS_RESET) return;  // in RESET: as fail_locked()
  enter_error_locked();
  if (service_ != Service::kXrcQueue) raise(IBV_EVENT_QP_FATAL);  // that one is no queue pair to its user
}

void SoftQp::fail_if_requested() noexcept {
  if (failed_life_.load(std::memory_order_relaxed) == 0) return;
  const std::uint32_t failed = failed_life_.exchange(0, std::memory_order_acquire);
  const std::scoped_lock guard(send_lock_);
  if (view_.shared->life.load(std::memory_order_relaxed) == failed) fail_locked();
}

/// What fails while the queue pair is on its way to RESET belongs to the life that ends, and does not end the next one.
void SoftQp::fail_locked() noexcept {
  if (state_.load(std::memory_order_relaxed) != IBV_QPS_RESET) enter_error_locked();
}

void SoftQp::enter_error_locked() noexcept {
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_ERR) return;
  end_link(*view_.shared, state_, await_visibility);
  qp_base.state = attributes_.qp_state = IBV_QPS_ERR;
  if (busy()) {
    soft_context_.stragglers().suspect(shared_from_this());
    soft_context_.retrier().wake();
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
  publish_attributes();  // each message's own queue pair says what is allowed
  state_.store(IBV_QPS_RTR, std::memory_order_relaxed);
  view_.shared->link.store(link_word(qp_base.qp_num, 0, service_), std::memory_order_release);
}

/// After a request that failed here: reliably connected, the queue pair is in ERR; else it goes on receiving.
void SoftQp::fail_sends_locked() noexcept {
  if (is_reliable(service_)) return fail_locked();
  if (state_.load(std::memory_order_relaxed) == IBV_QPS_RESET) return;
  state_.store(IBV_QPS_SQE, std::memory_order_seq_cst);
  qp_base.state = attributes_.qp_state = IBV_QPS_SQE;
  flush_pending();
}

int SoftQp::join(const ibv_gid& group) {
  return service_ == Service::kDatagram ? groups_.join(qp_base.qp_num, group) : EINVAL;
}

int SoftQp::leave(const ibv_gid& group) {
  return groups_.leave(group);
}

int SoftQp::reset() {
  // Nobody looks at the queues while they are emptied: not the pollers, not the initiator, not the retrier.
  send_queue_.detach(*this);
  recv_queue_.detach(*this);
  view_.shared->link.store(0, std::memory_order_seq_cst);
  const bool idle = wait_until_idle(Clock::now() + kLongestRequest, Wait::kBounded);
  if (idle) {
    forget_life();
  } else {
    stay_in_error();
  }
  soft_context_.tcp().forget_target(number(), true);
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
  tcp_.reset();
  goes_by_tcp_.store(false, std::memory_order_relaxed);
  keeps_all_ = late_;
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
  view_.shared->posted.store(0, std::memory_order_relaxed);
  view_.shared->recv_floor.store(UINT32_MAX, std::memory_order_relaxed);
  attributes_ = {};
  attributes_.qp_state = IBV_QPS_RESET;
}

/// Not RESET: the initiator may still fill a slot, which would be a message of the next life.
void SoftQp::stay_in_error() {
  const std::scoped_lock guard(send_lock_);
  state_.store(IBV_QPS_ERR, std::memory_order_seq_cst);
  qp_base.state = attributes_.qp_state = IBV_QPS_ERR;
  flush_pending();
}

bool SoftQp::wait_for_initiators() noexcept {
  return wait_for_initiators(Clock::now() + kLongestRequest);
}

bool SoftQp::wait_for_initiators(Clock::time_point deadline, Wait how) noexcept {
  await_visibility();
  return wait_for_seen_initiators(deadline, how);
}

bool SoftQp::wait_for_seen_initiators(Clock::time_point deadline, Wait how) noexcept {
  // An initiator that dies here is noticed by the serving thread, which takes its flag down.
  const bool known = left_behind_.load(std::memory_order_relaxed);
  std::chrono::microseconds pause{0};
  std::optional<Clock::time_point> writes_end;
  for (int looks = 0;; ++looks) {
    const std::uint32_t flag = view_.shared->busy.load(std::memory_order_seq_cst);
    if (flag == 0) return true;
    if (looks < 100) {
      sched_yield();
      continue;
    }
    const Clock::time_point now = Clock::now();
    const bool over = known || now >= deadline;
    if (over && (how == Wait::kBounded || !may_write_still(flag, now, writes_end))) break;
    pause = std::min(pause + std::chrono::microseconds(10), std::chrono::microseconds(1000));
    std::this_thread::sleep_for(pause);
  }
  soft_context_.stragglers().add(shared_from_this());
  soft_context_.retrier().wake();
  return false;
}

/// Whether an initiator with this flag, which did not let go in time, may yet write to memory by its address. Its call is taken back: it is
/// either under way in the system, and ends, or it never begins. `end` is when that is so, of one wait: a call that is given later
/// is none of those that this waits for, since its initiator looks again whether it may.
bool SoftQp::may_write_still(std::uint32_t flag, Clock::time_point now,
                             std::optional<Clock::time_point>& end) noexcept {
  if ((flag & kInOwnProcess) != 0) return true;
  if ((flag & kByAddress) == 0) return false;
  if (!end) {
    AddressWrite& write = view_.shared->write;
    if (write.is_given()) {
      // In this order: another thread that finds it taken back finds until when to wait.
      writes_end_.store(now + kLongestCall, std::memory_order_seq_cst);
      write.take_back();
    }
    end = writes_end_.load(std::memory_order_seq_cst);
  }
  return now < *end;
}

bool SoftQp::wait_until_idle(Clock::time_point deadline, Wait how) noexcept {
  await_visibility();
  return wait_until_seen_idle(deadline, how);
}

bool SoftQp::wait_until_seen_idle(Clock::time_point deadline, Wait how) noexcept {
  const bool idle = wait_for_seen_initiators(deadline, how);
  send_lock_.wait_until_left();
  const std::scoped_lock guard(service_mutex_);
  if (destroyed_) return idle;  // no poll looks at it any more, and the completion queues may be gone
  send_queue_.wait_for_poll();
  recv_queue_.wait_for_poll();
  return idle;
}

/// An initiator that is not waited for any longer does not count: it keeps nobody from flushing.
bool SoftQp::may_be_at_work() const noexcept {
  return busy() && !left_behind_.load(std::memory_order_relaxed);
}

bool SoftQp::forget_initiator(std::uint32_t initiator_qpn) noexcept {
  const std::atomic<std::uint32_t>& at_work = takes_turns(service_) ? view_.shared->busy : initiator_qpn_;
  if ((at_work.load(std::memory_order_acquire) & ~(kByAddress | kInOwnProcess)) != initiator_qpn) return false;
  {
    const std::scoped_lock guard(service_mutex_);
    if (busy()) withdraw_unpublished();
    if (served_srq_ != nullptr) served_srq_->forget_initiator(qp_base.qp_num, *view_.shared);
  }
  view_.shared->busy.store(0, std::memory_order_seq_cst);
  return true;
}

void SoftQp::withdraw_unpublished() noexcept {
  QpShared& shared = *view_.shared;
  InSlot& last = view_.slot(shared.taken - 1);
  // Before the first message, a slot's sequence is 0 as well.
  if (last.head.load(std::memory_order_acquire).sequence == shared.taken) return;
  --shared.taken;
  if (srq_ != nullptr && shared.claimed == 0) shared.claimed = SharedReceive::entry(last) + 1;
}

void SoftQp::raise(ibv_event_type type) {
  ibv_async_event event{};
  event.event_type = type;
  event.element.qp = verbs();
  soft_context_.events().push(event, events);
}

void SoftQp::raise_srq_limit() {
  const std::scoped_lock guard(service_mutex_);
  if (served_srq_ != nullptr) served_srq_->raise(IBV_EVENT_SRQ_LIMIT_REACHED);
}

bool SoftQp::describe(Answer& answer) {
  const std::scoped_lock guard(service_mutex_);
  if (destroyed_) return false;
  answer.qp_offset = block_.offset;
  answer.busy_address = reinterpret_cast<std::uint64_t>(&view_.shared->busy);
  answer.recv_cq_offset = recv_queue_.segment_offset();
  answer.pd = pd_number_;
  answer.recv_entries = view_.mask + 1;
  answer.max_recv_sge = capabilities_.max_recv_sge;
  if (srq_ != nullptr) {
    answer.srq_entries = srq_->entry_count();
    answer.srq_max_sge = srq_->max_sge();
    answer.srq_pd = srq_->pd_number();
    answer.srq_offset = srq_->segment_offset();
  }
  if (xrc_domain_ != nullptr) answer.xrc_domain = xrc_domain_->identity();
  const SoftChannel* const channel = recv_queue_.completion_channel();
  if (channel != nullptr) answer.channel = channel->number;
  return true;
}

int SoftQp::channel_descriptor(UniqueFd& wake_fd) {
  const std::scoped_lock guard(service_mutex_);
  const SoftChannel* const channel = destroyed_ ? nullptr : recv_queue_.completion_channel();
  if (channel == nullptr) return ENOENT;
  wake_fd.reset(fcntl(channel->fd, F_DUPFD_CLOEXEC, 0));
  return wake_fd ? 0 : errno;
}

void SoftQp::query(ibv_qp_attr& attributes, ibv_qp_init_attr& init) {
  const std::scoped_lock guard(send_lock_);
  attributes = attributes_;
  attributes.cur_qp_state = attributes_.qp_state;
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
  {
    const std::scoped_lock guard(service_mutex_);
    destroyed_ = true;
  }
  {
    const std::scoped_lock guard(send_lock_);
    end_link(*view_.shared, state_, await_visibility);
    flush_pending();
    wire_.reset();
    tcp_.reset();
  }
  soft_context_.tcp().forget_target(qp_base.qp_num, false);
  send_queue_.detach(*this);
  recv_queue_.detach(*this);
  if (wait_until_idle(Clock::now() + kLongestRequest, Wait::kUnlessByAddress)) return settle_after_destruction();
  // Of a shared receive queue it may yet take what is posted later.
  if (srq_ == nullptr) soft_context_.stragglers().retire(*this);
}

void SoftQp::settle_after_destruction() noexcept {
  const std::scoped_lock guard(service_mutex_);
  if (!destroyed_) return;
  if (served_srq_ != nullptr) return_shared_receives();
  served_srq_ = nullptr;
}

void SoftQp::forget_shared_receives(const SoftSrq& queue) noexcept {
  const std::scoped_lock guard(service_mutex_);
  if (served_srq_ == &queue) served_srq_ = nullptr;
}

}  // namespace rdmacomm::softdev
