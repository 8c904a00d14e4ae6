#include "softdev/tcp_link.h"

#include <algorithm>
#include <cerrno>
#include <optional>
#include <random>

#include "softdev/requests.h"
#include "softdev/soft_context.h"
#include "softdev/tcp_service.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kFirstPause{1};
constexpr std::chrono::milliseconds kLongestPause{50};

std::uint64_t new_token() {
  std::random_device random;
  return std::uint64_t{random()} << 32 | random();
}

}  // namespace

TcpGreeting greeting_of(const LocalEnd& own, std::uint32_t target_qpn) {
  TcpGreeting greeting;
  greeting.kind = GreetingKind::kRequests;
  greeting.service = own.service;
  greeting.initiator_qpn = own.qpn;
  greeting.target_qpn = target_qpn;
  greeting.path_mtu = own.path_mtu;
  greeting.token = new_token();
  return greeting;
}

TcpRequest head_of(const ibv_send_wr& wr, std::uint32_t bytes) noexcept {
  TcpRequest head;
  head.opcode = static_cast<std::uint8_t>(wr.opcode);
  head.solicited = (wr.send_flags & IBV_SEND_SOLICITED) != 0 ? 1 : 0;
  head.length = bytes;
  head.immediate = wr.imm_data;
  if (is_atomic(wr.opcode)) {
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

bool TcpLink::advance() {
  if (state_ == State::kClosed && Clock::now() >= next_try_) open();
  if (state_ != State::kOpening) return false;
  greet();
  return state_ == State::kOpening && introduction_.is_sent() && read_welcome();
}

void TcpLink::open() {
  socket_ = tcp_connect(route_, tcp_port_of(greeting().target_qpn));
  if (!socket_) return try_again();
  state_ = State::kOpening;
  introduction_.begin();
  wants_output_ = true;
  context_.tcp().watch_initiator(socket_.get(), greeting().initiator_qpn);
}

void TcpLink::greet() {
  if (introduction_.is_sent()) return;
  const int error = introduction_.greet(socket_.get());
  if (error == ECONNREFUSED && met_) return refuse();
  if (error != 0 && error != EAGAIN) return try_again();
  met_ = met_ || introduction_.has_begun();
  want_output(!introduction_.is_sent());
}

bool TcpLink::read_welcome() {
  const std::optional<Welcome> answer = introduction_.welcome(socket_.get());
  if (!answer) return false;
  if (*answer == Welcome::kNotYet) {
    try_again();
  } else if (*answer != Welcome::kYes) {
    refuse();
  } else {
    state_ = State::kReady;
    pause_ = kFirstPause;
  }
  return ready();
}

void TcpLink::refuse() {
  socket_.reset();
  state_ = State::kRefused;
}

void TcpLink::try_again() {
  socket_.reset();
  state_ = State::kClosed;
  next_try_ = Clock::now() + pause_;
  pause_ = std::min(pause_ * 2, kLongestPause);
}

void TcpLink::close() {
  socket_.reset();
  state_ = State::kClosed;
  next_try_ = {};
}

void TcpLink::want_output(bool wanted) {
  if (wants_output_ == wanted) return;
  wants_output_ = wanted;
  context_.tcp().change_initiator(socket_.get(), greeting().initiator_qpn, wanted);
}

}  // namespace rdmacomm::softdev
