#include "softdev/tcp/tcp_connection.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_service.h"
#include "softdev/tcp/tcp_wire.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxPieces = 128;
constexpr std::size_t kFewBytes = 256;
/// Maximum number of frames, or parts of them, before other connections continue.
constexpr int kMaxSteps = 256;
/// Time limit for the peer to close.
constexpr std::chrono::seconds kClosingTime{10};
/// The data of a longer READ bypass the buffer.
constexpr std::uint32_t kLongRead = 16 * 1024;

}  // namespace

TcpConnection::TcpConnection(TcpService& service, UniqueFd socket, std::shared_ptr<TcpOwner> own, const Ends& ends)
    : service_(service),
      socket_(std::move(socket)),
      longest_send_(tcp_longest_send(socket_.get())),
      own_(std::move(own)),
      ends_(ends),
      input_(socket_.get(), TcpInput::kFirst) {
  if (ends.receives) target_.emplace(service, *own_, ends.other, input_, output_);
}

TcpConnection::~TcpConnection() = default;

// ---- Out

int TcpConnection::send(TcpWire* requests) {
  while (!output_.is_reading()) {
    std::array<iovec, kMaxPieces> pieces;
    std::size_t count = 0;
    const bool in_request = requests != nullptr && requests->is_in_request();
    const std::span<std::byte> answers = in_request ? std::span<std::byte>() : output_.bytes();
    if (!answers.empty()) pieces[count++] = {answers.data(), answers.size()};
    const std::uint32_t done = output_.reportable(own_ == nullptr ? 0 : own_->messages_polled());
    if (requests != nullptr) count += requests->gather(std::span(pieces).subspan(count), done);
    if (count == 0) {
      if (!output_.has_responses()) want_output(false);
      return 0;
    }
    const Moved moved = send_pieces(std::span(pieces).first(count));
    const std::size_t of_answers = std::min(moved.bytes, answers.size());
    if (of_answers != 0) output_.sent(of_answers);
    if (requests != nullptr && moved.bytes > of_answers) {
      if (!in_request) output_.note_reported(done);
      requests->sent(moved.bytes - of_answers);
    }
    if (moved.error == EAGAIN) want_output(true);
    if (moved.error == EFAULT && requests != nullptr) {
      requests->fail_at_memory();
      return 0;
    }
    if (moved.error != 0) return moved.error;
  }
  return EAGAIN;
}

/// Copies a few bytes into one piece first, which costs less in the kernel.
Moved TcpConnection::send_pieces(std::span<iovec> pieces) noexcept {
  std::array<std::byte, kFewBytes> together;
  std::size_t whole = 0;
  for (const iovec& piece : pieces) whole += piece.iov_len;
  if (whole > together.size() || pieces.size() == 1) return tcp_send(socket(), pieces, longest_send_);
  std::byte* to = together.data();
  for (const iovec& piece : pieces) {
    std::memcpy(to, piece.iov_base, piece.iov_len);
    to += piece.iov_len;
  }
  iovec one{together.data(), whole};
  return tcp_send(socket(), {&one, 1});
}

void TcpConnection::want_output(bool wanted) noexcept {
  if (blocked_.load(std::memory_order_relaxed) == wanted) return;
  blocked_.store(wanted, std::memory_order_relaxed);
  service_.change_connection(socket(), ends_.id, wanted);
}

void TcpConnection::set_read_by_polls(bool by_polls) {
  read_by_polls_ = by_polls;
  watch_or_not();
}

void TcpConnection::watch_or_not() {
  const bool is_watched = !read_by_polls_ && !(target_ && target_->stands_still());
  if (std::exchange(is_watched_, is_watched) == is_watched) return;
  if (!is_watched) return service_.unwatch_connection(socket());
  bool wants_output = blocked_.load();
  service_.watch_connection(socket(), ends_.id, wants_output);
  // A want_output() of another thread meanwhile had no effect, because the socket was not watched yet.
  while (blocked_.load() != wants_output) {
    wants_output = !wants_output;
    service_.change_connection(socket(), ends_.id, wants_output);
  }
}

void TcpConnection::cut() noexcept {
  (void)shutdown(socket(), is_closing_.load(std::memory_order_relaxed) ? SHUT_WR : SHUT_RDWR);
}

bool TcpConnection::go_first(std::span<const iovec> pieces) {
  std::size_t whole = 0;
  for (const iovec& piece : pieces) whole += piece.iov_len;
  std::vector<std::byte> copy(whole);
  const iovec to{copy.data(), whole};
  // The application may have unmapped this memory.
  const ssize_t copied = process_vm_readv(getpid(), &to, 1, pieces.data(), pieces.size(), 0);
  if (copied != static_cast<ssize_t>(whole)) return false;
  output_.go_first(copy);
  want_output(true);
  return true;
}

void TcpConnection::respond(TcpWire* requests) {
  for (int steps = 0; steps < kMaxSteps; ++steps) {
    if (output_.is_reading()) {
      if (!send_reading()) return;
    } else if (send(requests) != 0 || !output_.next_response()) {
      return;
    }
  }
  want_output(true);  // other connections continue first
}

/// Sends the next part of the data for a READ, after its header. Returns false: not now, or never.
bool TcpConnection::send_reading() {
  if (const std::span<std::byte> head = output_.bytes(); !head.empty()) {
    iovec rest{head.data(), head.size()};
    const Moved moved = tcp_send(socket(), {&rest, 1});
    output_.sent(moved.bytes);
    if (moved.error != 0) want_output(true);
    return moved.error == 0;
  }
  TcpOutput::Reading& reading = output_.reading();
  const Moved moved = target_->read_part(reading, longest_send_);
  reading.moved += static_cast<std::uint32_t>(moved.bytes);
  if (reading.moved == reading.request.length) output_.end_reading();
  if (moved.error == EAGAIN || moved.error == EBUSY) want_output(moved.error == EAGAIN);
  if (moved.error == EFAULT) cut();  // the answer has announced all of the data
  return moved.error == 0;
}

void TcpConnection::send_all() {
  if (own_ != nullptr) {
    own_->send_by(*this);
  } else {
    (void)send(nullptr);
  }
}

void TcpConnection::answer_what_is_owed() {
  if (own_ == nullptr) return;
  {
    const BiasedGuard guard(own_->send_lock());
    output_.report_done();
  }
  send_all();
}

// ---- In

bool TcpConnection::progress() {
  input_.begin_round();
  if (stage_ == Stage::kServing) serve();
  watch_or_not();
  if (stage_ == Stage::kClosing) return linger();
  return stage_ == Stage::kServing;
}

void TcpConnection::serve() {
  must_send_ = has_received_ = blocked_.load(std::memory_order_relaxed) || waits();
  if (waits()) end_if_over(target_->look_again());
  has_more_ = true;
  for (int steps = 0; has_more_ && steps < kMaxSteps && stage_ == Stage::kServing; ++steps) {
    const TcpStep next = step();
    has_more_ = next == TcpStep::kGoOn;
    has_received_ = has_received_ || next != TcpStep::kWait;
    end_if_over(next);
  }
  must_send_ = output_.take_reported() || must_send_;
  if (must_send_ && stage_ == Stage::kServing) send_all();
}

TcpStep TcpConnection::step() {
  if (bringing_ != 0) return bring();
  if (target_ && target_->in_request()) return target_->go_on();
  if (input_.available() < sizeof(TcpAnswer)) return fill(in_stream_ ? sizeof(TcpRequest) : sizeof(TcpAnswer));
  switch (static_cast<FrameKind>(*input_.data())) {
    case FrameKind::kAnswer: return take_answer();
    case FrameKind::kRequest: return take_request();
  }
  return TcpStep::kBroken;
}

/// Receives the missing bytes. Between long messages it receives nothing more, so that payload is read straight to its
/// place.
TcpStep TcpConnection::fill(std::size_t needed) {
  return step_of(input_.fill(needed, in_stream_));
}

TcpStep TcpConnection::take_request() {
  if (!target_) return TcpStep::kBroken;
  if (input_.available() < sizeof(TcpRequest)) return fill(sizeof(TcpRequest));
  TcpRequest request;
  input_.take(request);
  // First completes the local requests that the peer has answered. Only then the message that may be its reaction is
  // executed.
  if (request.done != peer_executed_ && !own_->note_executed(*this, request.done)) return TcpStep::kBroken;
  peer_executed_ = request.done;
  const TcpStep step = target_->begin(request);
  in_stream_ = target_->in_stream();
  return step;
}

TcpStep TcpConnection::take_answer() {
  TcpAnswer answer;
  input_.take(answer);
  peer_executed_ = answer.done;
  if (!own_->take(*this, answer)) return TcpStep::kBroken;
  if (answer.kind != TcpAnswer::kDone) must_send_ = true;  // the local requests may continue in another way now
  if (answer.kind != TcpAnswer::kPayload) return TcpStep::kGoOn;
  bringing_ = answer.length;
  in_stream_ = bringing_ > kLongRead;
  return bringing_ == 0 ? bring() : TcpStep::kGoOn;
}

TcpStep TcpConnection::bring() {
  const Moved moved = own_->bring(*this, input_, bringing_);
  bringing_ -= static_cast<std::uint32_t>(moved.bytes);
  return step_of(moved.error);
}

// ---- Ends

void TcpConnection::end_if_over(TcpStep step) {
  if (step == TcpStep::kClose || step == TcpStep::kBroken) end(step);
}

void TcpConnection::end(TcpStep how) {
  stage_ = how == TcpStep::kClose ? Stage::kClosing : Stage::kOver;
  if (stage_ == Stage::kClosing) is_closing_ = true;
  if (stage_ == Stage::kOver) {
    cut();
    own_->lose(*this);
  }
}

bool TcpConnection::linger() {
  if (!closing_since_) closing_since_ = Clock::now();
  if (Clock::now() - *closing_since_ >= kClosingTime) return false;
  send_all();
  if (blocked_.load(std::memory_order_relaxed)) return true;
  if (own_ != nullptr) own_->note_closing(*this, target_ && target_->has_refused());
  drop_queue_pair();
  (void)shutdown(socket(), SHUT_WR);
  return input_.linger();
}

bool TcpConnection::forget(std::uint32_t qpn, bool comes_again) {
  if (own_ == nullptr || own_->number() != qpn) return false;
  if (comes_again && stage_ == Stage::kServing) {
    const BiasedGuard guard(own_->send_lock());
    TcpAnswer answer;
    answer.kind = TcpAnswer::kUnreachable;
    output_.send_answer(answer);
  }
  answer_what_is_owed();
  if (stage_ != Stage::kServing) return true;
  end(output_.is_reading() ? TcpStep::kBroken : TcpStep::kClose);
  if (!blocked_.load(std::memory_order_relaxed)) drop_queue_pair();
  return true;
}

/// Drops the queue pair, which frees its memory if this is the last user.
void TcpConnection::drop_queue_pair() {
  target_.reset();
  own_.reset();
}

}  // namespace rdmacomm::softdev
