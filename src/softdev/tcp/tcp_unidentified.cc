#include "softdev/tcp/tcp_unidentified.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstring>
#include <utility>

#include "softdev/tcp/tcp_connection.h"
#include "softdev/tcp/tcp_datagram_target.h"
#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBuffer = 256;
/// Time limit for sending the greeting, or for closing.
constexpr std::chrono::seconds kPatience{10};
/// Maximum number of bytes to read from a connection after its final answer. A correct peer sends none.
constexpr std::size_t kMaxAfterwards = 16 * 1024;
constexpr std::uint32_t kGreatestQpn = 0xffffff;

}  // namespace

TcpUnidentified::TcpUnidentified(TcpService& service, UniqueFd socket, const Route& back, std::uint64_t id)
    : service_(service), socket_(std::move(socket)), back_(back), id_(id), input_(socket_.get(), kBuffer) {}

std::uint32_t TcpUnidentified::events() const noexcept {
  return EPOLLIN;
}

TcpStanding TcpUnidentified::standing() const noexcept {
  if (stage_ == Stage::kGreeting) return TcpStanding::kUnknown;
  return stage_ == Stage::kOver ? TcpStanding::kOver : TcpStanding::kPeer;
}

bool TcpUnidentified::progress() {
  input_.begin_round();
  if (stage_ == Stage::kGreeting) read_greeting();
  if (stage_ == Stage::kConfirming) read_confirmation();
  if (Clock::now() - accepted_at_ >= kPatience) return false;
  return stage_ == Stage::kOver ? input_.linger(kMaxAfterwards) : true;
}

void TcpUnidentified::read_greeting() {
  while (input_.available() < sizeof(greeting_)) {
    const int error = input_.fill(sizeof(greeting_), true);
    if (error == EAGAIN) return;
    if (error != 0) {
      stage_ = Stage::kOver;
      return;
    }
    // Greetings of other versions have other lengths, so do not wait for a full greeting of this version.
    if (!begins_like_a_greeting()) {
      stage_ = reply(Welcome::kRefused);
      return;
    }
  }
  input_.take(greeting_);
  stage_ = judge();
}

bool TcpUnidentified::begins_like_a_greeting() noexcept {
  const TcpGreeting expected;
  const std::size_t known = std::min(input_.available(), offsetof(TcpGreeting, kind));
  return std::memcmp(input_.data(), &expected, known) == 0;
}

TcpUnidentified::Stage TcpUnidentified::judge() {
  const bool has_number = greeting_.initiator_qpn != 0 && greeting_.initiator_qpn <= kGreatestQpn;
  if (!has_number) return reply(Welcome::kRefused);
  if (greeting_.kind == GreetingKind::kConfirm) return judge_confirm();
  target_ = service_.premises().owners.tcp_owner(greeting_.target_qpn);
  const bool expected =
      target_ != nullptr && target_->expects(greeting_.initiator_qpn, greeting_.service, back_.target, greeting_.path);
  if (!expected) return reply(Welcome::kNotYet);
  if (greeting_.kind == GreetingKind::kCall) return judge_call(*target_);
  if (greeting_.kind != GreetingKind::kConnection || target_->connects()) return reply(Welcome::kRefused);
  return greeting_.service == Service::kDatagram ? reply(Welcome::kYes) : request_confirmation();
}

TcpUnidentified::Stage TcpUnidentified::judge_confirm() {
  const auto initiator = service_.premises().owners.tcp_owner(greeting_.initiator_qpn);
  const bool mine = initiator != nullptr && initiator->has_sent_greeting(greeting_.target_qpn, greeting_.token);
  return reply(mine ? Welcome::kYes : Welcome::kRefused);
}

/// The only effect of a call is that the queue pair connects to its own peer.
TcpUnidentified::Stage TcpUnidentified::judge_call(TcpOwner& target) {
  if (!target.connects()) return reply(Welcome::kRefused);
  target.connect_now();
  return reply(Welcome::kSoon);
}

/// Each queue pair asks back one initiator at a time. So the number of open questions is at most the number of queue
/// pairs.
TcpUnidentified::Stage TcpUnidentified::request_confirmation() {
  if (!target_->begin_question()) return reply(Welcome::kSoon);
  asks_ = true;
  socket_of_question_ = tcp_connect(back_, tcp_port_of(greeting_.initiator_qpn));
  TcpGreeting question = greeting_;
  question.kind = GreetingKind::kConfirm;
  question.secret = {};  // another process may have the initiator's port by now
  question_.emplace(question);
  return socket_of_question_.valid() ? Stage::kConfirming : Stage::kOver;
}

void TcpUnidentified::end_question() noexcept {
  socket_of_question_.reset();
  if (std::exchange(asks_, false)) target_->end_question();
}

void TcpUnidentified::read_confirmation() {
  const int error = question_->send_greeting(question());
  if (error != 0 && error != EAGAIN) {
    end_question();
    stage_ = Stage::kOver;
  }
  if (!question_->is_sent()) return;
  const std::optional<TcpWelcome> answer = question_->welcome(question());
  if (!answer) return;
  end_question();
  const bool comes = answer->answer == Welcome::kYes && target_->admits(greeting_.secret, secret_);
  stage_ = reply(comes ? Welcome::kYes : Welcome::kRefused);
}

bool TcpUnidentified::forget(std::uint32_t qpn, bool /*comes_again*/) {
  if (stage_ != Stage::kConfirming || target_->number() != qpn) return false;
  end_question();
  stage_ = reply(Welcome::kNotYet);
  return true;
}

/// Nothing was sent on this connection before, so the message fits into the socket.
TcpUnidentified::Stage TcpUnidentified::reply(Welcome answer) {
  TcpWelcome message;
  message.answer = answer;
  const bool is_welcome = answer == Welcome::kYes && target_ != nullptr;
  if (is_welcome) {  // otherwise a process could find out which numbers exist
    message.path_mtu = target_->path_mtu();
    message.read_depth = target_->read_depth();
    message.secret = secret_;
  }
  iovec whole{&message, sizeof(message)};
  const bool sent = tcp_send(socket(), {&whole, 1}).bytes == sizeof(message);
  const bool stays = sent && answer == Welcome::kYes && greeting_.kind == GreetingKind::kConnection;
  if (!stays) (void)shutdown(socket(), sent ? SHUT_WR : SHUT_RDWR);
  return stays ? Stage::kWelcome : Stage::kOver;
}

std::shared_ptr<TcpServed> TcpUnidentified::successor() {
  if (stage_ != Stage::kWelcome) return nullptr;
  const TcpTarget::Initiator initiator{
      greeting_.initiator_qpn, {greeting_.path_mtu, greeting_.read_depth}, greeting_.service};
  if (greeting_.service == Service::kDatagram) {
    return std::make_shared<TcpDatagramTarget>(service_, std::move(socket_), back_, *target_, initiator);
  }
  const bool both_ways = !target_->is_one_way();
  const auto connection = std::make_shared<TcpConnection>(service_, std::move(socket_), target_,
                                                          TcpConnection::Ends{id_, both_ways, true, initiator});
  if (both_ways) target_->adopt(connection);
  return connection;
}

}  // namespace rdmacomm::softdev
