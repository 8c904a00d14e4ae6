#include "softdev/tcp/tcp_datagram_target.h"

#include <sys/epoll.h>

#include <cstring>
#include <utility>
#include <vector>

#include "softdev/host/gid_table.h"
#include "softdev/host/port_watch.h"
#include "softdev/tcp/datagram_format.h"
#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_service.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

/// Maximum number of datagrams before other connections continue.
constexpr int kMaxDatagrams = 256;
/// Size of the first buffer in bytes.
constexpr std::size_t kFirstBuffer = 512;
/// Time that a datagram waits for a receive.
constexpr std::chrono::milliseconds kReceivePatience{250};

}  // namespace

TcpDatagramTarget::TcpDatagramTarget(TcpService& service, UniqueFd socket, const Route& back, const TcpOwner& own,
                                     const TcpTarget::Initiator& initiator)
    : service_(service),
      socket_(std::move(socket)),
      back_(back),
      own_qpn_(own.number()),
      wire_({&service.premises().local, initiator.qpn, own.pd_number(), initiator.limits.path_mtu, initiator.service,
             nullptr, true},
            own.number()),
      input_(socket_.get(), kFirstBuffer) {
  wire_.attach();
}

std::uint32_t TcpDatagramTarget::events() const noexcept {
  // While a datagram waits, the socket is only watched for its end.
  return waits() ? EPOLLET : EPOLLIN;
}

bool TcpDatagramTarget::progress() {
  input_.begin_round();
  has_more_ = !over_;
  for (int steps = 0; has_more_ && steps < kMaxDatagrams; ++steps) {
    const TcpStep next = step();
    has_more_ = next == TcpStep::kGoOn;
    over_ = next == TcpStep::kClose || next == TcpStep::kBroken;
  }
  return !over_;
}

TcpStep TcpDatagramTarget::step() {
  if (current_) return deliver();
  if (input_.available() < sizeof(TcpRequest)) return step_of(input_.fill(sizeof(TcpRequest)));
  current_.emplace();
  input_.take(*current_);
  return is_datagram(*current_) ? TcpStep::kGoOn : TcpStep::kBroken;
}

/// Rejects a source address that does not belong to the sender, and a Q_Key that would mean "the target's own". A
/// process of this host, which connects over loopback, may use every address of this host.
bool TcpDatagramTarget::is_honest(const TcpDatagramAddress& address) {
  if (current_->key >> 31 != 0) return false;
  if (verbs::reach_of(back_.target) != verbs::Reach::kHost) {
    return address.is_global != 0 && address.source_lid == 0 && verbs::equal(address.source, back_.target);
  }
  if (address.source_lid != 0 && !is_local_lid(address.source_lid)) return false;
  return address.is_global == 0 || is_this_hosts(address.source);
}

bool TcpDatagramTarget::is_this_hosts(const ibv_gid& source) {
  if (known_source_ && verbs::equal(*known_source_, source)) return true;
  std::vector<ibv_gid_entry> table;
  std::vector<ibv_gid_entry> host;
  if (service_.premises().port.gids(table, &host) != 0 || !is_local_gid(host, source)) return false;
  known_source_ = source;
  return true;
}

TcpStep TcpDatagramTarget::deliver() {
  TcpDatagramAddress address;
  const std::size_t whole = sizeof(address) + current_->length;
  if (input_.available() < whole) {
    input_.make_room(whole);
    return step_of(input_.fill(whole));
  }
  std::memcpy(static_cast<void*>(&address), input_.data(), sizeof(address));
  SoftAh ah = handle_of(address);
  ibv_sge slice{reinterpret_cast<std::uint64_t>(input_.data() + sizeof(address)), current_->length, 0};
  ibv_send_wr wr = work_request_of(*current_, slice);
  wr.wr.ud = {&ah, own_qpn_, current_->key};
  const bool honest = is_honest(address);
  const ExecResult result = honest ? wire_.send_datagram(wr) : ExecResult::done(0);
  if (result.outcome() == ExecOutcome::kReceiverNotReady) {
    if (!waiting_since_) waiting_since_ = Clock::now();
    if (Clock::now() - *waiting_since_ < kReceivePatience) return TcpStep::kWait;
  }
  waiting_since_.reset();
  current_.reset();
  input_.consume(whole);
  if (honest && result.succeeded()) {
    last_taken_ = Clock::now();
    input_.widen();
  }
  const bool gone = result.outcome() == ExecOutcome::kLost || result.outcome() == ExecOutcome::kUnreachable;
  return gone ? TcpStep::kBroken : TcpStep::kGoOn;
}

bool TcpDatagramTarget::forget(std::uint32_t qpn, bool /*comes_again*/) {
  if (qpn == own_qpn_) over_ = true;
  return over_;
}

}  // namespace rdmacomm::softdev
