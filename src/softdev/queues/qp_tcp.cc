#include "softdev/queues/qp_tcp.h"

#include <mutex>

#include "softdev/local/link_terms.h"
#include "softdev/memory/requests.h"
#include "softdev/queues/datagram_wire.h"
#include "softdev/queues/premises.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/tcp/expected_secrets.h"
#include "softdev/tcp/tcp_connection.h"
#include "softdev/tcp/tcp_service.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {

int QpTcp::connect_locked(const Route& route, std::uint32_t target_qpn, bool sends) {
  TcpService& service = qp_.premises_.tcp;
  if (const int error = service.serve(number(), route.source); error != 0) return error;
  if (const int error = pairing_.begin(route.target, target_qpn); error != 0) return error;
  if (const auto secret = take_expected_secret(route.target, target_qpn)) pairing_.expect(*secret);
  is_connected_.store(true, std::memory_order_release);
  if (sends) {
    wire_ = std::make_unique<TcpWire>(service, qp_.own_end(), route, target_qpn, path_word(qp_.sending_), pairing_);
  }
  return 0;
}

std::optional<TcpSecret> QpTcp::secret() noexcept {
  const std::scoped_lock guard(qp_.send_lock_);
  if (!is_connected_.load(std::memory_order_relaxed) && pairing_.draw() != 0) return std::nullopt;
  return pairing_.own();
}

void QpTcp::forget_locked() noexcept {
  end_sends_locked();
  is_connected_.store(false, std::memory_order_relaxed);
}

void QpTcp::advance() noexcept {
  // A thread that posts a datagram may hold the lock for seconds while it looks for a stopped process. epoll will
  // report the socket again.
  const BiasedTry guard(qp_.send_lock_);
  if (!guard) return;
  const std::uint32_t reported = qp_.send_reported_;
  if (wire_ != nullptr) {
    advance_locked();
  } else if (qp_.wire_ != nullptr) {
    qp_.wire_->advance();
  }
  qp_.notify_sender(reported);
}

bool QpTcp::has_unsent_datagrams() noexcept {
  if (qp_.service_ != Service::kDatagram) return false;
  const BiasedTry guard(qp_.send_lock_);
  const DatagramWire* const wire = guard ? qp_.datagram_wire() : nullptr;
  return wire != nullptr && wire->has_unsent();
}

/// The reason why no request can continue; kDone: none.
ExecOutcome QpTcp::obstacle_locked() const noexcept {
  return qp_.port_is_up_ ? wire_->obstacle() : ExecOutcome::kUnreachable;
}

void QpTcp::start_locked() noexcept {
  while (wire_->under_way() < qp_.pending_.size() && qp_.state_.load(std::memory_order_relaxed) == IBV_QPS_RTS) {
    SoftQp::WaitingRequest& next = qp_.pending_[wire_->under_way()];
    const ibv_send_wr& wr = next.wr;
    if (qp_.can_fail_) {
      if (wire_->under_way() != 0 && qp_.has_fault(next)) break;  // earlier requests must finish first
      const std::optional<ExecResult> fault = qp_.hold_or_fail(next);
      if (fault && !fault->is_done()) break;
      if (fault) {
        qp_.settle_first(*fault);
        continue;
      }
    }
    if (!is_for_here(wr.opcode)) {
      if (!qp_.port_is_up_ || !wire_->start(wr, qp_.recv_polled_.load(std::memory_order_relaxed))) break;
    } else if (wire_->under_way() == 0) {
      qp_.settle_first(qp_.execute_here(wr));
    } else {
      break;  // earlier requests must finish first
    }
  }
  wire_->send();
  take_answers_locked();  // requests refused locally are answered at once
  const bool under_way = wire_->under_way() != 0 && obstacle_locked() == ExecOutcome::kDone;
  qp_.under_way_.store(under_way, std::memory_order_relaxed);
  qp_.report_news();
  if (!under_way && !qp_.pending_.empty()) qp_.premises_.threads.wake_retrier();
}

void QpTcp::take_answers_locked() noexcept {
  ExecResult result(ExecOutcome::kDone);
  while (!qp_.pending_.empty() && wire_->take_answer(result)) qp_.settle_first(result);
}

void QpTcp::advance_locked() noexcept {
  wire_->advance();
  take_answers_locked();
  start_locked();
  if (qp_.pending_.empty()) return;
  ExecOutcome obstacle = obstacle_locked();
  if (obstacle == ExecOutcome::kDone && wire_->under_way() == 0) obstacle = qp_.held_by_;
  ibv_wc_status status{};
  if (obstacle == ExecOutcome::kDone) {
    // A target that accepts the connection may still refuse each request. So the time to give up stays until one of them
    // is answered.
    if (qp_.waiting_for_ != ExecOutcome::kUnreachable) qp_.waiting_for_ = ExecOutcome::kDone;
  } else if (qp_.give_up(obstacle, status)) {
    const bool reliable = is_reliable(qp_.service_);
    wire_->abandon();
    qp_.settle_first(reliable ? ExecResult::refused(status) : ExecResult::lost(0));
  }
}

bool QpTcp::expects(std::uint32_t initiator_qpn, Service service, const ibv_gid& from, std::uint64_t path) noexcept {
  if (service != qp_.service_ || qp_.view_.shared->link.load(std::memory_order_relaxed) == 0) return false;
  if (qp_.service_ == Service::kDatagram) return true;
  if (!is_connected_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock guard(qp_.send_lock_);
  return !qp_.route_.by_memory && qp_.attributes_.dest_qp_num == initiator_qpn &&
         verbs::equal(qp_.route_.target, from) && path_word(qp_.receiving_terms()) == path;
}

bool QpTcp::has_sent_greeting(std::uint32_t target_qpn, std::uint64_t token) noexcept {
  if (!is_connected_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock guard(qp_.send_lock_);
  return wire_ != nullptr && qp_.attributes_.dest_qp_num == target_qpn && wire_->greeting().token == token;
}

bool QpTcp::admits(const TcpSecret& shown, TcpSecret& own) noexcept {
  const std::scoped_lock guard(qp_.send_lock_);
  own = pairing_.own();
  return pairing_.is_peers(shown);
}

bool QpTcp::is_one_way_locked() const noexcept {
  return softdev::is_one_way(qp_.service_, qp_.route_, number(), qp_.attributes_.dest_qp_num);
}

bool QpTcp::is_one_way() noexcept {
  const std::scoped_lock guard(qp_.send_lock_);
  return is_one_way_locked();
}

bool QpTcp::connects() noexcept {
  if (!is_connected_.load(std::memory_order_acquire)) return false;
  const std::scoped_lock guard(qp_.send_lock_);
  return wire_ != nullptr && !is_one_way_locked() && wire_->greeting().kind == GreetingKind::kConnection;
}

void QpTcp::connect_now() noexcept {
  const BiasedGuard guard(qp_.send_lock_);
  if (wire_ != nullptr) wire_->connect_now();
}

void QpTcp::adopt(const std::shared_ptr<TcpConnection>& connection) noexcept {
  std::shared_ptr<TcpConnection> before;
  {
    const BiasedGuard guard(qp_.send_lock_);
    if (wire_ != nullptr) before = wire_->connection();
  }
  if (before != nullptr) (void)before->progress();
  const BiasedGuard guard(qp_.send_lock_);
  const std::uint32_t reported = qp_.send_reported_;
  if (wire_ != nullptr) {
    take_answers_locked();
    wire_->adopt(connection);
    advance_locked();
  }
  qp_.notify_sender(reported);
}

/// Runs `work`, and completes all requests that it has found to be finished.
template <typename Work>
auto QpTcp::with_wire(TcpConnection& connection, Work&& work) noexcept {
  const BiasedGuard guard(qp_.send_lock_);
  const std::uint32_t reported = qp_.send_reported_;
  const bool is_mine = wire_ != nullptr && wire_->uses(connection);
  const auto result = work(is_mine ? wire_.get() : nullptr);
  if (is_mine) take_answers_locked();
  if (is_mine && wire_->under_way() < qp_.pending_.size()) start_locked();
  qp_.notify_sender(reported);
  return result;
}

bool QpTcp::note_executed(TcpConnection& connection, std::uint32_t done) noexcept {
  return with_wire(connection, [&](TcpWire* wire) { return wire == nullptr || wire->note_executed(done); });
}

bool QpTcp::take(TcpConnection& connection, const TcpAnswer& answer) noexcept {
  return with_wire(connection, [&](TcpWire* wire) { return wire == nullptr || wire->take(answer); });
}

Moved QpTcp::bring(TcpConnection& connection, TcpInput& input, std::uint32_t left) noexcept {
  return with_wire(connection, [&](TcpWire* wire) {
    Moved moved;
    if (left != 0) moved = wire == nullptr ? input.throw_away(left) : wire->bring(input, left);
    if (wire != nullptr && moved.bytes == left) wire->has_brought();
    // The memory is invalid and the request fails soon, so the rest of the data is ignored.
    return moved.error == EFAULT ? Moved{} : moved;
  });
}

void QpTcp::lose(TcpConnection& connection) noexcept {
  const BiasedGuard guard(qp_.send_lock_);
  const std::uint32_t reported = qp_.send_reported_;
  if (wire_ != nullptr) {
    if (wire_->uses(connection)) wire_->lose();
    // A queue pair that accepts no requests and has none to send does not connect again.
    if (qp_.view_.shared->link.load(std::memory_order_relaxed) != 0 || !qp_.pending_.empty()) advance_locked();
  }
  qp_.notify_sender(reported);
}

void QpTcp::note_closing(TcpConnection& connection, bool for_good) noexcept {
  const BiasedGuard guard(qp_.send_lock_);
  if (wire_ == nullptr || !wire_->uses(connection)) return;
  wire_->lose();
  if (for_good) wire_->refuse();
}

void QpTcp::send_by(TcpConnection& connection) noexcept {
  const BiasedGuard guard(qp_.send_lock_);
  const std::uint32_t reported = qp_.send_reported_;
  const bool is_mine = wire_ != nullptr && wire_->uses(connection);
  connection.respond(is_mine ? wire_.get() : nullptr);
  if (is_mine) advance_locked();
  qp_.notify_sender(reported);
}

}  // namespace rdmacomm::softdev
