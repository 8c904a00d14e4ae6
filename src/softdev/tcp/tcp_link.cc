#include "softdev/tcp/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "softdev/memory/requests.h"
#include "softdev/tcp/tcp_service.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstReconnectPause{1};
constexpr std::chrono::milliseconds kLongestReconnectPause{50};

std::uint64_t new_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace

TcpGreeting greeting_of(const LocalEnd& own, std::uint32_t target_qpn) {
  TcpGreeting greeting;
  greeting.kind = GreetingKind::kConnection;
  greeting.service = own.service;
  greeting.initiator_qpn = own.qpn;
  greeting.target_qpn = target_qpn;
  greeting.path_mtu = own.path_mtu;
  greeting.read_depth = own.read_depth;
  greeting.token = new_token();
  return greeting;
}

TcpRequest head_of(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  TcpRequest head;
  head.opcode = static_cast<std::uint8_t>(wr.opcode);
  head.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0 ? 1 : 0;
  head.length = bytes;
  head.immediate = wr.imm_data;
  if (has_operands(wr.opcode)) {
    head.key = wr.wr.atomic.rkey;
    head.address = wr.wr.atomic.remote_addr;
    head.operand = wr.wr.atomic.compare_add;
    head.swap = wr.wr.atomic.swap;
  } else {
    head.key = wr.wr.rdma.rkey;
    head.address = wr.wr.rdma.remote_addr;
  }
  return head;
}

bool is_one_way(Service service, const Route& route, std::uint32_t own, std::uint32_t other) noexcept {
  if (service != Service::kReliable && service != Service::kUnreliable) return true;
  return own == other && verbs::equal(route.source, route.target);
}

bool connects_to_other(Service service, const Route& route, std::uint32_t own, std::uint32_t other) noexcept {
  if (is_one_way(service, route, own, other)) return true;
  const int order = std::memcmp(route.source.raw, route.target.raw, sizeof(route.source.raw));
  return order == 0 ? own < other : order < 0;
}

TcpLink::TcpLink(TcpService& service, const Route& route, const TcpGreeting& greeting, TcpPairing* pairing) noexcept
    : service_(service), route_(route), pairing_(pairing), introduction_(greeting) {}

std::optional<TcpLink::Welcomed> TcpLink::advance() {
  if (state_ == State::kClosed && Clock::now() >= next_try_) open();
  if (state_ != State::kOpening) return {};
  send_greeting();
  if (state_ != State::kOpening || !introduction_.is_sent()) return {};
  return read_welcome();
}

void TcpLink::open() {
  socket_ = tcp_connect(route_, tcp_port_of(greeting().target_qpn));
  if (!socket_) return try_again();
  state_ = State::kOpening;
  is_older_ = false;
  introduction_.begin();
  wants_output_ = true;
  service_.watch_initiator(socket_.get(), greeting().initiator_qpn);
}

void TcpLink::send_greeting() {
  if (introduction_.is_sent()) return;
  const int error = introduction_.send_greeting(socket_.get());
  if (error == ECONNREFUSED && target_existed_) return refuse();
  if (error != 0 && error != EAGAIN) return try_again();
  target_existed_ = target_existed_ || introduction_.has_begun();
  want_output(!introduction_.is_sent());
}

void TcpLink::want_output(bool wanted) {
  if (std::exchange(wants_output_, wanted) == wanted) return;
  service_.change_initiator(socket_.get(), greeting().initiator_qpn, wanted);
}

std::optional<TcpLink::Welcomed> TcpLink::read_welcome() {
  const std::optional<TcpWelcome> reply = introduction_.welcome(socket_.get());
  if (!reply) return {};
  const bool comes = reply->answer == Welcome::kYes && !calls();
  const bool is_target = !comes || pairing_ == nullptr || pairing_->is_peers(reply->secret);
  if (comes && is_target) {
    Welcomed welcomed{std::move(socket_), {reply->path_mtu, reply->read_depth}};
    try_again();  // in case this socket is lost
    return welcomed;
  }
  if (reply->answer == Welcome::kRefused || !is_target) {
    refuse();
  } else {
    try_again();  // a called peer connects itself; if it does not, it is called again
    is_put_off_ = reply->answer == Welcome::kNotYet && !is_older_;
    if (is_older_) hurry();  // meanwhile, the target may accept it
  }
  return {};
}

void TcpLink::begin_waiting() noexcept {
  is_put_off_ = false;
  is_older_ = state_ == State::kOpening;
  pause_ = kFirstReconnectPause;
  hurry();
}

void TcpLink::note_target_exists() noexcept {
  target_existed_ = true;
  socket_.reset();
  state_ = State::kClosed;
  next_try_ = {};
  pause_ = kFirstReconnectPause;
}

void TcpLink::refuse() {
  socket_.reset();
  state_ = State::kRefused;
}

void TcpLink::try_again() {
  socket_.reset();
  state_ = State::kClosed;
  is_put_off_ = false;
  next_try_ = Clock::now() + pause_;
  pause_ = std::min(pause_ * 2, kLongestReconnectPause);
}

}  // namespace rdmacomm::softdev
