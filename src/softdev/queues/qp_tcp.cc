// The send queue of a queue pair that is connected to another host: what TcpWire has under way, and what comes back.
#include <mutex>

#include "softdev/context/soft_context.h"
#include "softdev/memory/requests.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/tcp/tcp_connection.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {

void SoftQp::start_by_tcp_locked() noexcept {
  while (tcp_->under_way() < pending_.size() && state_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
    const ibv_send_wr& wr = pending_[tcp_->under_way()].wr;
    if (!is_for_here(wr.opcode)) {
      if (!tcp_->start(wr, recv_polled_.load(std::memory_order_relaxed))) break;
    } else if (tcp_->under_way() == 0) {
      settle_first(execute_here(wr));
    } else {
      break;  // what was posted before is to be done before
    }
  }
  tcp_->send();
  take_answers_locked();  // those that are wrong are known to be here
  const bool under_way = tcp_->under_way() != 0 && tcp_->obstacle() == ExecOutcome::kDone;
  under_way_.store(under_way, std::memory_order_relaxed);
  if (!under_way && !pending_.empty()) soft_context_.retrier().wake();
}

void SoftQp::take_answers_locked() noexcept {
  ExecResult result(ExecOutcome::kDone);
  while (!pending_.empty() && tcp_->take_answer(result)) settle_first(result);
}

void SoftQp::advance_by_tcp_locked() noexcept {
  tcp_->advance();
  take_answers_locked();
  start_by_tcp_locked();
  if (pending_.empty()) return;
  const ExecOutcome obstacle = tcp_->obstacle();
  ibv_wc_status status{};
  if (obstacle == ExecOutcome::kDone) {
    waiting_for_ = ExecOutcome::kDone;
  } else if (give_up(obstacle, status)) {
    const bool reliable = is_reliable(service_);
    tcp_->abandon();
    settle_first(reliable ? ExecResult::refused(status) : ExecResult::done(0));
  }
}

bool SoftQp::expects(std::uint32_t initiator_qpn, Service service, const ibv_gid& from) noexcept {
  if (service != service_ || view_.shared->link.load(std::memory_order_relaxed) == 0) return false;
  if (service_ == Service::kDatagram) return true;
  if (!goes_by_tcp_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock guard(send_lock_);
  return !route_.by_memory && attributes_.dest_qp_num == initiator_qpn && verbs::equal(route_.target, from);
}

bool SoftQp::has_greeted(std::uint32_t target_qpn, std::uint64_t token) noexcept {
  if (!goes_by_tcp_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock guard(send_lock_);
  return tcp_ != nullptr && attributes_.dest_qp_num == target_qpn && tcp_->greeting().token == token;
}

bool SoftQp::admits(const TcpSecret& shown, TcpSecret& own) noexcept {
  const std::scoped_lock guard(send_lock_);
  own = pairing_.own();
  return pairing_.is_peers(shown);
}

bool SoftQp::is_one_way_locked() const noexcept {
  return softdev::is_one_way(service_, route_, number(), attributes_.dest_qp_num);
}

bool SoftQp::is_one_way() noexcept {
  const std::scoped_lock guard(send_lock_);
  return is_one_way_locked();
}

bool SoftQp::connects() noexcept {
  if (!goes_by_tcp_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock guard(send_lock_);
  return tcp_ != nullptr && !is_one_way_locked() && tcp_->greeting().kind == GreetingKind::kConnection;
}

void SoftQp::connect_now() noexcept {
  const BiasedGuard guard(send_lock_);
  if (tcp_ != nullptr) tcp_->connect_now();
}

void SoftQp::adopt(const std::shared_ptr<TcpConnection>& connection) noexcept {
  std::shared_ptr<TcpConnection> before;
  {
    const BiasedGuard guard(send_lock_);
    if (tcp_ != nullptr) before = tcp_->connection();
  }
  if (before != nullptr) (void)before->progress();
  const BiasedGuard guard(send_lock_);
  const std::uint32_t reported = send_reported_;
  if (tcp_ != nullptr) {
    take_answers_locked();
    tcp_->adopt(connection);
    advance_by_tcp_locked();
  }
  notify_sender(reported);
}

/// Runs `work`, and completes what it has found to be done.
template <typename Work>
auto SoftQp::with_wire(TcpConnection& connection, Work&& work) noexcept {
  const BiasedGuard guard(send_lock_);
  const std::uint32_t reported = send_reported_;
  const bool is_mine = tcp_ != nullptr && tcp_->goes_by(connection);
  const auto result = work(is_mine ? tcp_.get() : nullptr);
  if (is_mine) take_answers_locked();
  if (is_mine && tcp_->under_way() < pending_.size()) start_by_tcp_locked();
  notify_sender(reported);
  return result;
}

bool SoftQp::heard(TcpConnection& connection, std::uint32_t done) noexcept {
  return with_wire(connection, [&](TcpWire* wire) { return wire == nullptr || wire->heard(done); });
}

bool SoftQp::take(TcpConnection& connection, const TcpAnswer& answer) noexcept {
  return with_wire(connection, [&](TcpWire* wire) { return wire == nullptr || wire->take(answer); });
}

Moved SoftQp::bring(TcpConnection& connection, TcpInput& input, std::uint32_t left) noexcept {
  return with_wire(connection, [&](TcpWire* wire) {
    Moved moved;
    if (left != 0) moved = wire == nullptr ? input.throw_away(left) : wire->bring(input, left);
    if (wire != nullptr && moved.bytes == left) wire->has_brought();
    // Its memory is gone, and soon its request: the rest is for nobody.
    return moved.error == EFAULT ? Moved{} : moved;
  });
}

void SoftQp::lose(TcpConnection& connection) noexcept {
  const BiasedGuard guard(send_lock_);
  const std::uint32_t reported = send_reported_;
  if (tcp_ != nullptr) {
    if (tcp_->goes_by(connection)) tcp_->lose();
    // Who accepts nothing any more does not connect again for nothing.
    if (view_.shared->link.load(std::memory_order_relaxed) != 0 || !pending_.empty()) advance_by_tcp_locked();
  }
  notify_sender(reported);
}

void SoftQp::leave(TcpConnection& connection, bool for_good) noexcept {
  const BiasedGuard guard(send_lock_);
  if (tcp_ == nullptr || !tcp_->goes_by(connection)) return;
  tcp_->lose();
  if (for_good) tcp_->refuse();
}

void SoftQp::send_by(TcpConnection& connection) noexcept {
  const BiasedGuard guard(send_lock_);
  const std::uint32_t reported = send_reported_;
  const bool is_mine = tcp_ != nullptr && tcp_->goes_by(connection);
  connection.respond(is_mine ? tcp_.get() : nullptr);
  if (is_mine) advance_by_tcp_locked();
  notify_sender(reported);
}

}  // namespace rdmacomm::softdev
