#include "softdev/tcp_target.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>

#include "rdmacomm/verbs/gid.h"
#include "softdev/device_limits.h"
#include "softdev/requests.h"
#include "softdev/soft_context.h"
#include "softdev/soft_qp.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kBuffer = 128 * 1024;
constexpr std::size_t kStrangersBuffer = 256;
/// Messages of more than that are not gathered in the buffer, but for those of XRC.
constexpr std::uint32_t kLargestGathered = 16 * 1024;
/// Buffers that a message has made larger than that do not stay so.
constexpr std::size_t kMostKept = 4 * 1024 * 1024;
/// The end of a long WRITE goes by the buffer: its last bytes must not be seen before the others, see copy.h.
constexpr std::uint32_t kWriteTail = 64;
/// Of a long message, as much is waited for at a time.
constexpr std::size_t kLargestPiece = 256 * 1024;
/// Requests, or parts of them, before others have their turn.
constexpr int kMostSteps = 256;
/// How long a datagram waits for a receive, and a stranger may take to say who he is, or anybody to close.
constexpr std::chrono::milliseconds kDatagramWait{250};
constexpr std::chrono::seconds kGreetingWait{10};
constexpr std::uint32_t kGreatestQpn = 0xffffff;

ibv_wr_opcode opcode_of(const TcpRequest& request) noexcept {
  return static_cast<ibv_wr_opcode>(request.opcode);
}

/// Whether a peer that follows the protocol could have sent it.
bool is_valid(const TcpRequest& request, Service service) noexcept {
  if (request.length > kMaxMessageBytes) return false;
  if (service == Service::kDatagram) return is_send(opcode_of(request)) && request.length <= kPortMtuBytes;
  if (is_atomic(opcode_of(request))) return is_reliable(service) && request.length == sizeof(std::uint64_t);
  if (request.opcode == IBV_WR_RDMA_READ) return is_reliable(service);
  return is_send(opcode_of(request)) || is_write(opcode_of(request));
}

/// Copies into memory of this process that an application may have given back meanwhile.
bool copy_guarded(const iovec& to, const std::byte* from) noexcept {
  const iovec source{const_cast<std::byte*>(from), to.iov_len};
  if (process_vm_writev(getpid(), &source, 1, &to, 1, 0) == static_cast<ssize_t>(to.iov_len)) return true;
  if (errno != EPERM && errno != ENOSYS) return false;
  std::memcpy(to.iov_base, from, to.iov_len);
  return true;
}

/// Bytes that arrive: first those that the buffer has already, then straight from the socket.
class Inward final : public PartMover {
 public:
  Inward(int socket, std::span<const std::byte> buffered, std::size_t most) noexcept
      : socket_(socket), buffered_(buffered), most_(most) {}
  [[nodiscard]] std::size_t taken_from_buffer() const noexcept { return taken_; }

  [[nodiscard]] Moved move(std::span<iovec> places) noexcept override {
    std::size_t allowed = most_;
    for (iovec& place : places) {
      place.iov_len = std::min(place.iov_len, allowed);
      allowed -= place.iov_len;
    }
    if (buffered_.empty()) return tcp_receive(socket_, places);
    for (iovec place : places) {
      place.iov_len = std::min(place.iov_len, buffered_.size() - taken_);
      if (place.iov_len == 0) continue;
      if (!copy_guarded(place, buffered_.data() + taken_)) return {taken_, EFAULT};
      taken_ += place.iov_len;
    }
    return {taken_, 0};
  }

 private:
  const int socket_;
  const std::span<const std::byte> buffered_;
  const std::size_t most_;
  std::size_t taken_ = 0;
};

class Outward final : public PartMover {
 public:
  /// nothing: finds out whether the bytes may be read at all.
  Outward(int socket, bool nothing) noexcept : socket_(socket), nothing_(nothing) {}
  [[nodiscard]] Moved move(std::span<iovec> places) noexcept override {
    return nothing_ ? Moved{0, EAGAIN} : tcp_send(socket_, places);
  }

 private:
  const int socket_;
  const bool nothing_;
};

template <typename Message>
std::span<const std::byte> bytes_of(const Message& message) noexcept {
  return std::as_bytes(std::span(&message, 1));
}

}  // namespace

TcpTarget::TcpTarget(SoftContext& context, UniqueFd socket, const Route& back)
    : context_(context), socket_(std::move(socket)), back_(back), in_(kStrangersBuffer) {}

bool TcpTarget::progress() {
  drained_ = false;
  if (stage_ == Stage::kGreeting) (void)read_greeting();
  if (stage_ == Stage::kAsking) (void)read_confirmation();
  if (stage_ == Stage::kServing) serve();
  (void)flush();
  if (stage_ == Stage::kOver) return linger();
  return stage_ == Stage::kServing || Clock::now() - accepted_at_ < kGreetingWait;
}

/// It is over at once, and nothing is said any more.
TcpTarget::Step TcpTarget::hang_up() {
  stage_ = Stage::kOver;
  socket_.reset();
  return Step::kWait;
}

/// To close with something unread would take back what was sent last. So it is read until the other end has closed.
bool TcpTarget::linger() {
  if (!socket_.valid()) return false;
  if (!over_since_) over_since_ = Clock::now();
  if (Clock::now() - *over_since_ >= kGreetingWait) return false;
  if (out_done_ < out_.size()) return true;
  (void)shutdown(socket_.get(), SHUT_WR);
  for (int steps = 0; steps < kMostSteps; ++steps) {
    in_begin_ = in_end_ = 0;
    drained_ = false;
    if (fill(in_.size()) == Step::kWait) break;
  }
  return socket_.valid();
}

// ---- Who is it?

TcpTarget::Step TcpTarget::read_greeting() {
  while (available() < sizeof(greeting_)) {
    if (fill(sizeof(greeting_)) == Step::kWait) return Step::kWait;
  }
  std::memcpy(static_cast<void*>(&greeting_), in_.data() + in_begin_, sizeof(greeting_));
  in_begin_ += sizeof(greeting_);
  stage_ = check_greeting();
  return Step::kGoOn;
}

TcpTarget::Stage TcpTarget::check_greeting() {
  const bool has_number = greeting_.initiator_qpn != 0 && greeting_.initiator_qpn <= kGreatestQpn;
  if (greeting_.magic != kTcpMagic || greeting_.version != kTcpVersion || !has_number) {
    welcome(Welcome::kRefused);
    return Stage::kOver;
  }
  if (greeting_.kind == GreetingKind::kConfirm) {
    const auto initiator = context_.queue_pairs().find(greeting_.initiator_qpn);
    const bool mine = initiator != nullptr && initiator->has_greeted(greeting_.target_qpn, greeting_.token);
    welcome(mine ? Welcome::kYes : Welcome::kRefused);
    return Stage::kOver;
  }
  const auto target = context_.queue_pairs().find(greeting_.target_qpn);
  const bool expected = target != nullptr && target->expects(greeting_.initiator_qpn, greeting_.service, back_.target);
  if (!expected) {
    welcome(Welcome::kNotYet);
    return Stage::kOver;
  }
  const LocalEnd end{
      &context_, greeting_.initiator_qpn, target->pd_number(), greeting_.path_mtu, greeting_.service, nullptr, true};
  wire_.emplace(end, greeting_.target_qpn);
  if (greeting_.service == Service::kXrc) queues_.emplace(end.at_xrc_queue(greeting_.target_qpn));
  wire_->attach();
  target_ = target;
  if (greeting_.service != Service::kDatagram) return ask_back() ? Stage::kAsking : Stage::kOver;
  welcome(Welcome::kYes);
  return Stage::kServing;
}

bool TcpTarget::ask_back() {
  socket_of_question_ = tcp_connect(back_, tcp_port_of(greeting_.initiator_qpn));
  TcpGreeting question = greeting_;
  question.kind = GreetingKind::kConfirm;
  question_.emplace(question);
  return socket_of_question_.valid();
}

TcpTarget::Step TcpTarget::read_confirmation() {
  const int error = question_->greet(question());
  if (error != 0 && error != EAGAIN) stage_ = Stage::kOver;
  if (!question_->is_sent()) return Step::kWait;
  const std::optional<Welcome> reply = question_->welcome(question());
  if (!reply) return Step::kWait;
  const bool yes = *reply == Welcome::kYes;
  socket_of_question_.reset();
  welcome(yes ? Welcome::kYes : Welcome::kRefused);
  stage_ = yes ? Stage::kServing : Stage::kOver;
  return Step::kGoOn;
}

void TcpTarget::welcome(Welcome answer) {
  TcpWelcome message;
  message.answer = answer;
  append(bytes_of(message));
}

// ---- Requests

void TcpTarget::serve() {
  has_more_ = true;
  if (in_.size() < kBuffer) in_.resize(kBuffer);
  for (int steps = 0; has_more_ && steps < kMostSteps; ++steps) {
    has_more_ = serve_step() == Step::kGoOn && stage_ == Stage::kServing;
  }
}

bool TcpTarget::is_answered_otherwise() const noexcept {
  return done_with_message_ == done_ && target_->has_told_of(message_);
}

bool TcpTarget::answer_what_is_owed() {
  if (owes_answer()) answer(TcpAnswer::kDone);
  (void)flush();
  return socket_.valid();
}

TcpTarget::Step TcpTarget::serve_step() {
  if (flush() == Step::kWait) return Step::kWait;
  if (skipping_ != 0) return skip();
  return reading_ ? stream_out() : next_request();
}

TcpTarget::Step TcpTarget::flush() {
  while (out_done_ < out_.size()) {
    iovec rest{out_.data() + out_done_, out_.size() - out_done_};
    const Moved sent = tcp_send(socket_.get(), {&rest, 1});
    out_done_ += sent.bytes;
    if (sent.error == EAGAIN) return Step::kWait;
    if (sent.error != 0) return hang_up();
  }
  out_.clear();
  if (out_.capacity() > kMostKept) out_.shrink_to_fit();
  out_done_ = 0;
  return Step::kGoOn;
}

/// More bytes, at least one, of `needed` and what may follow them. Between long messages nothing but what is needed, which is their
/// heads: the rest goes to its place at once.
TcpTarget::Step TcpTarget::fill(std::size_t needed) {
  if (drained_) return Step::kWait;
  if (in_begin_ == in_end_) {
    in_begin_ = in_end_ = 0;
    if (in_.size() > kMostKept) std::vector<std::byte>(kBuffer).swap(in_);
  }
  if (in_begin_ != 0 && in_end_ == in_.size()) {
    std::memmove(in_.data(), in_.data() + in_begin_, available());
    in_end_ = available();
    in_begin_ = 0;
  }
  const std::size_t most = in_stream_ ? needed - available() : in_.size();
  iovec place{in_.data() + in_end_, std::min(most, in_.size() - in_end_)};
  const Moved received = tcp_receive(socket_.get(), {&place, 1});
  in_end_ += received.bytes;
  drained_ = received.bytes < place.iov_len;
  if (received.error == 0) return Step::kGoOn;
  return received.error == EAGAIN ? Step::kWait : hang_up();
}

bool TcpTarget::has_payload() const noexcept {
  return is_send(opcode_of(*current_)) || is_write(opcode_of(*current_));
}

TcpTarget::Step TcpTarget::next_request() {
  if (!current_) {
    if (available() < sizeof(TcpRequest)) return fill(sizeof(TcpRequest));
    current_.emplace();
    std::memcpy(static_cast<void*>(&*current_), in_.data() + in_begin_, sizeof(TcpRequest));
    in_begin_ += sizeof(TcpRequest);
    moved_ = 0;
    if (!is_valid(*current_, greeting_.service)) return hang_up();
  }
  if (greeting_.service == Service::kDatagram) return datagram();
  early_ = comes_early();
  if (early_) return Step::kWait;
  const bool whole = current_->length <= kLargestGathered || queues_;
  in_stream_ = !whole && has_payload();
  if (whole) return whole_request();
  return has_payload() ? stream_in() : stream_out();
}

/// Its initiator has polled messages of the target's whose answers are not here yet: they come by another connection, and later.
/// Applications take for granted that what a peer reacts to is completed, as a NIC sees to it. So they are completed now; what
/// they stand behind, a READ, is waited for.
bool TcpTarget::comes_early() {
  return target_->owes_completions(current_->heard) && !target_->complete_messages(current_->heard);
}

ibv_send_wr TcpTarget::work_request(ibv_sge& slice) const noexcept {
  ibv_send_wr wr{};
  wr.opcode = opcode_of(*current_);
  wr.send_flags = IBV_SEND_INLINE | (current_->solicited != 0 ? IBV_SEND_SOLICITED : 0);
  wr.imm_data = current_->immediate;
  wr.qp_type.xrc.remote_srqn = current_->queue;
  wr.sg_list = &slice;
  wr.num_sge = slice.length == 0 ? 0 : 1;
  if (is_atomic(wr.opcode)) {
    wr.num_sge = 1;
    wr.wr.atomic = {current_->address, current_->operand, current_->swap, current_->key};
  } else {
    wr.wr.rdma.remote_addr = current_->address;
    wr.wr.rdma.rkey = current_->key;
  }
  return wr;
}

ExecResult TcpTarget::execute(const ibv_send_wr& wr) {
  return queues_ ? wire_->exec_xrc(wr, queues_->get(current_->queue)) : wire_->exec(wr);
}

/// The buffer grows with what has come, not with what is announced.
void TcpTarget::make_room(std::size_t length) {
  if (available() == in_.size()) in_.resize(std::min(2 * in_.size(), length));
}

/// A message that goes by a buffer whole.
TcpTarget::Step TcpTarget::whole_request() {
  const std::uint32_t length = current_->length;
  const bool arrives = has_payload();
  if (arrives && available() < length) {
    make_room(length);
    return fill(length);
  }
  // What is read lies behind the answer that announces it.
  const std::size_t head = out_.size();
  if (!arrives) out_.resize(head + sizeof(TcpAnswer) + length);
  std::byte* const bytes = arrives ? in_.data() + in_begin_ : out_.data() + head + sizeof(TcpAnswer);
  ibv_sge slice{reinterpret_cast<std::uint64_t>(bytes), length, 0};
  const ExecResult result = execute(work_request(slice));
  if (!result.succeeded()) {
    out_.resize(head);
    return settle(result);
  }
  request_done();
  if (arrives) {
    in_begin_ += length;
  } else {
    const TcpAnswer answer = next_answer(TcpAnswer::kPayload, length, IBV_WC_SUCCESS);
    std::memcpy(out_.data() + head, &answer, sizeof(answer));
  }
  return Step::kGoOn;
}

TcpTarget::Step TcpTarget::stream_in() {
  ibv_sge nothing{};
  ibv_send_wr wr = work_request(nothing);
  std::uint32_t total = current_->length;
  if (is_write(opcode_of(*current_))) {
    wr.opcode = IBV_WR_RDMA_WRITE;
    total -= kWriteTail;
  }
  const std::size_t left = total - std::min(moved_, total);
  if (left == 0) return write_end(wr);
  Inward mover(socket_.get(), {in_.data() + in_begin_, std::min(available(), left)}, left);
  const ExecResult result = wire_->exec_part(wr, total, moved_, mover);
  // Also of one that is refused at its end: what has been taken does not follow any more.
  if (result.bytes() != 0) in_begin_ += mover.taken_from_buffer();
  moved_ += result.bytes();
  if (!result.succeeded()) return settle(result);
  waiting_ = false;
  if (moved_ == current_->length) request_done();
  if (result.bytes() != 0) return Step::kGoOn;
  wake_after(left);
  return Step::kWait;
}

/// Its socket tells of so many bytes of the current message, or of many, not of each few: what comes piecemeal is acknowledged
/// piecemeal, and that is work for the sender.
void TcpTarget::wake_after(std::size_t bytes) noexcept {
  const int wanted = static_cast<int>(std::min(bytes, kLargestPiece));
  if (std::exchange(woken_after_, wanted) != wanted) tcp_wake_after(socket_.get(), wanted);
}

/// The last bytes of a long WRITE, then what else it has to say.
TcpTarget::Step TcpTarget::write_end(ibv_send_wr& wr) {
  if (moved_ != current_->length) {
    wake_after(1);
    if (available() < kWriteTail) return fill(kWriteTail + sizeof(TcpRequest));
    ibv_sge tail{reinterpret_cast<std::uint64_t>(in_.data() + in_begin_), kWriteTail, 0};
    wr.sg_list = &tail;
    wr.num_sge = 1;
    wr.wr.rdma.remote_addr = current_->address + moved_;
    const ExecResult result = wire_->exec(wr);
    if (!result.succeeded()) return settle(result);
    in_begin_ += kWriteTail;
    moved_ = current_->length;
  }
  if (current_->opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    wr.opcode = IBV_WR_RDMA_WRITE_WITH_IMM;
    Outward nothing(-1, true);
    const ExecResult result = wire_->exec_part(wr, current_->length, moved_, nothing);
    if (!result.succeeded()) return settle(result);
  }
  request_done();
  return Step::kGoOn;
}

TcpTarget::Step TcpTarget::stream_out() {
  ibv_sge nothing{};
  const ibv_send_wr wr = work_request(nothing);
  Outward mover(socket_.get(), !reading_);
  const ExecResult result = wire_->exec_part(wr, current_->length, moved_, mover);
  if (!result.succeeded()) {
    // The answer has said that it will be whole.
    return reading_ ? hang_up() : settle(result);
  }
  if (!reading_) {
    reading_ = true;
    ++done_;
    answer(TcpAnswer::kPayload, current_->length);
    return Step::kGoOn;
  }
  moved_ += result.bytes();
  if (moved_ < current_->length) return result.bytes() == 0 ? Step::kWait : Step::kGoOn;
  reading_ = false;
  current_.reset();
  return Step::kGoOn;
}

TcpTarget::Step TcpTarget::datagram() {
  TcpDatagramAddress address;
  if (available() < sizeof(address) + current_->length) return fill(sizeof(address) + current_->length);
  const std::byte* const bytes = in_.data() + in_begin_;
  std::memcpy(static_cast<void*>(&address), bytes, sizeof(address));
  SoftAh ah{};
  ah.source = address.source;
  ah.source_lid = address.source_lid;
  ah.is_routable = address.is_routable != 0;
  ah.attributes.is_global = address.is_global;
  ah.attributes.sl = address.service_level;
  ah.attributes.grh = {address.target, address.flow_label, 0, address.hop_limit, address.traffic_class};
  ibv_sge slice{reinterpret_cast<std::uint64_t>(bytes + sizeof(address)), current_->length, 0};
  ibv_send_wr wr = work_request(slice);
  wr.wr.ud = {&ah, greeting_.target_qpn, current_->key};
  // No key may mean "the target's own", and nobody sends under an address of another's.
  const bool honest =
      verbs::equal(address.source, back_.target) || verbs::reach_of(back_.target) == verbs::Reach::kHost;
  if (honest && current_->key >> 31 == 0) {
    const ExecResult result = wire_->send_datagram(wr);
    if (result.outcome() == ExecOutcome::kReceiverNotReady) {
      if (!std::exchange(waiting_, true)) waiting_since_ = Clock::now();
      if (Clock::now() - waiting_since_ < kDatagramWait) return Step::kWait;
    }
    if (result.outcome() == ExecOutcome::kLost || result.outcome() == ExecOutcome::kUnreachable) stage_ = Stage::kOver;
  }
  in_begin_ += sizeof(address) + current_->length;
  request_done();
  return Step::kGoOn;
}

/// What becomes of a request that was not carried out.
TcpTarget::Step TcpTarget::settle(const ExecResult& result) {
  if (greeting_.service == Service::kUnreliable && result.outcome() != ExecOutcome::kLost) {
    skipping_ = has_payload() ? current_->length - moved_ : 0;
    request_done();
    return Step::kGoOn;
  }
  if (result.outcome() == ExecOutcome::kReceiverNotReady) {
    if (!std::exchange(waiting_, true)) answer(TcpAnswer::kNotReady);
    return Step::kWait;
  }
  const bool refused = result.is_done();
  answer(refused ? TcpAnswer::kFailed : TcpAnswer::kUnreachable, 0, refused ? result.status() : IBV_WC_SUCCESS);
  stage_ = Stage::kOver;
  return Step::kWait;
}

TcpTarget::Step TcpTarget::skip() {
  if (available() == 0 && fill(skipping_) == Step::kWait) return Step::kWait;
  const auto here = static_cast<std::uint32_t>(std::min<std::size_t>(available(), skipping_));
  in_begin_ += here;
  skipping_ -= here;
  return Step::kGoOn;
}

void TcpTarget::request_done() {
  ++done_;
  wake_after(1);
  if (answers() && takes_receive(opcode_of(*current_))) {
    done_with_message_ = done_;
    message_ = target_->messages_arrived();
  }
  waiting_ = false;
  current_.reset();
}

TcpAnswer TcpTarget::next_answer(TcpAnswer::Kind kind, std::uint32_t length, ibv_wc_status status) {
  TcpAnswer message;
  message.done = confirmed_ = done_;
  message.kind = kind;
  message.status = static_cast<std::uint8_t>(status);
  message.rnr_timer = static_cast<std::uint8_t>(wire_->rnr_timer_code());
  message.length = length;
  return message;
}

void TcpTarget::answer(TcpAnswer::Kind kind, std::uint32_t length, ibv_wc_status status) {
  append(bytes_of(next_answer(kind, length, status)));
}

}  // namespace rdmacomm::softdev
