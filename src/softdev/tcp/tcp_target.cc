#include "softdev/tcp/tcp_target.h"

#include <algorithm>
#include <cerrno>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/memory/requests.h"
#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

/// Longer messages are not received into the buffer, except for XRC.
constexpr std::uint32_t kLargestGathered = 16 * 1024;
/// The end of a long WRITE is received through the buffer, because its last bytes must not be visible before the
/// others, see copier.h.
constexpr std::uint32_t kWriteTail = 64;
/// A peer can send any path MTU.
constexpr std::uint32_t kSmallestMtu = 256;
/// The number of bytes of a long message to wait for at a time.
constexpr std::size_t kLargestPiece = 256 * 1024;

/// Only for a request that is_valid().
ibv_wr_opcode opcode_of(const TcpRequest& request) noexcept {
  return static_cast<ibv_wr_opcode>(request.opcode);
}

/// True for requests that are answered by their number. They have a payload, which may be empty.
bool has_payload(const TcpRequest& request) noexcept {
  return !brings_bytes(opcode_of(request));
}

/// True if a correct peer could have sent it.
bool is_valid(const TcpRequest& request, Service service) noexcept {
  if (!is_remote_opcode(request.opcode) || request.length > kMaxMessageBytes) return false;
  if (is_atomic(opcode_of(request))) return is_reliable(service) && request.length == sizeof(std::uint64_t);
  if (request.opcode == IBV_WR_RDMA_READ) return is_reliable(service);
  if (request.opcode == kWrAtomicWrite) return service == Service::kReliable && request.length == sizeof(std::uint64_t);
  if (request.opcode == kWrFlush) return service == Service::kReliable && request.length == 0;
  return has_payload(request);
}

class Inward final : public PartMover {
 public:
  /// Moves at most `most` bytes; the read that completes them also reads up to `ahead` following bytes.
  Inward(TcpInput& input, std::size_t most, std::size_t ahead) noexcept : input_(input), most_(most), ahead_(ahead) {}
  [[nodiscard]] Moved move(std::span<iovec> places) noexcept override { return input_.move(places, most_, ahead_); }

 private:
  TcpInput& input_;
  const std::size_t most_;
  const std::size_t ahead_;
};

class Outward final : public PartMover {
 public:
  Outward(int socket, std::size_t longest) noexcept : socket_(socket), longest_(longest) {}
  [[nodiscard]] Moved move(std::span<iovec> places) noexcept override { return tcp_send(socket_, places, longest_); }

 private:
  const int socket_;
  const std::size_t longest_;
};

/// Time that an XRC request waits for its turn, or for the process that owns its queue.
constexpr std::chrono::seconds kTurnPatience{5};

/// The number of bytes of a long XRC READ to copy at a time.
constexpr std::size_t kReadPiece = 64 * 1024;

/// Replaces kBusy by kUnreachable after kTurnPatience. since: time of the first kBusy in a row; no value: the last
/// result was another one.
ExecResult with_patience(const ExecResult& result, std::optional<Clock::time_point>& since) noexcept {
  const bool is_busy = result.outcome() == ExecOutcome::kBusy;
  const Clock::time_point now = is_busy ? Clock::now() : Clock::time_point();
  if (is_busy && now - since.value_or(now) < kTurnPatience) {
    since = since.value_or(now);
    return result;
  }
  since.reset();
  return is_busy ? ExecResult(ExecOutcome::kUnreachable) : result;
}

/// Moves no bytes; used to check if bytes may be moved.
class Nothing final : public PartMover {
 public:
  [[nodiscard]] Moved move(std::span<iovec> /*places*/) noexcept override { return {0, EAGAIN}; }
};

}  // namespace

ibv_send_wr work_request_of(const TcpRequest& request, ibv_sge& slice) noexcept {
  ibv_send_wr wr{};
  wr.opcode = opcode_of(request);
  wr.send_flags = IBV_SEND_INLINE | (request.solicited != 0 ? IBV_SEND_SOLICITED : 0);
  wr.imm_data = request.immediate;
  wr.qp_type.xrc.remote_srqn = request.queue;
  wr.sg_list = &slice;
  wr.num_sge = slice.length == 0 ? 0 : 1;
  if (is_atomic(wr.opcode)) wr.num_sge = 1;
  if (has_operands(wr.opcode)) {
    wr.wr.atomic = {request.address, request.operand, request.swap, request.key};
  } else {
    wr.wr.rdma.remote_addr = request.address;
    wr.wr.rdma.rkey = request.key;
  }
  return wr;
}

TcpTarget::TcpTarget(TcpService& service, TcpOwner& own, const Initiator& initiator, TcpInput& input, TcpOutput& output)
    : own_(own),
      in_(input),
      out_(output),
      service_(initiator.service),
      packet_bytes_(std::max(initiator.limits.path_mtu, kSmallestMtu)),
      traffic_(service.premises().local.traffic),
      wire_({&service.premises().local, initiator.qpn, own.pd_number(), initiator.limits.path_mtu, initiator.service,
             nullptr, true},
            own.number()),
      finder_(service.premises().finder) {
  if (service_ == Service::kXrc) {
    const LocalEnd end{
        &service.premises().local, initiator.qpn, own.pd_number(), initiator.limits.path_mtu, service_, nullptr, true};
    queues_.emplace(end.at_xrc_queue(own.number()));
  }
  wire_.attach();
}

TcpStep TcpTarget::begin(const TcpRequest& request) {
  if (!is_valid(request, service_)) return TcpStep::kBroken;
  if (!psn_) {
    LinkTerms terms;
    terms.psn = psn_.emplace(request.psn);
    wire_.begin(terms, 0);
  }
  if (request.psn != *psn_) return TcpStep::kBroken;
  if (request.again != 0) {
    if (!throws_away_ || held_) return TcpStep::kBroken;
    throws_away_ = false;
  }
  if (throws_away_) {
    skipping_ = has_payload(request) ? request.length : 0;
    return TcpStep::kGoOn;
  }
  current_ = request;
  moved_ = 0;
  if (has_payload(request)) in_stream_ = request.length > kLargestGathered && !queues_;
  is_unchecked_ = queues_ && request.length > kLargestGathered && !is_send(opcode_of(request));
  return go_on();
}

TcpStep TcpTarget::go_on() {
  if (skipping_ != 0) return skip();
  if (is_unchecked_) return check_long_xrc();
  if (current_->length <= kLargestGathered || queues_) return whole_request();
  return has_payload(*current_) ? stream_in() : check_read();
}

TcpStep TcpTarget::fill(std::size_t needed) {
  return step_of(in_.fill(needed, in_stream_));
}

TcpStep TcpTarget::skip() {
  const Moved moved = in_.throw_away(skipping_);
  skipping_ -= static_cast<std::uint32_t>(moved.bytes);
  return step_of(moved.error);
}

// ---- Through the buffer

/// A thread that polls the message has seen that it was executed, and may reply before this thread continues.
void TcpTarget::announce(const TcpRequest& request) noexcept {
  if (takes_receive(opcode_of(request)) && !queues_) out_.announce(own_.messages_arrived() + 1);
}

ExecResult TcpTarget::execute(const TcpRequest& request, std::span<std::byte> bytes) {
  ibv_sge slice{reinterpret_cast<std::uint64_t>(bytes.data()), static_cast<std::uint32_t>(bytes.size()), 0};
  const ibv_send_wr wr = work_request_of(request, slice);
  announce(request);
  return queues_ ? execute_xrc(wr, request.queue) : wire_.exec(wr);
}

ExecResult TcpTarget::execute_xrc(const ibv_send_wr& wr, std::uint32_t queue) {
  LocalWire* const at = queues_->get(queue, finder_);
  const ExecResult result = at == nullptr ? ExecResult(ExecOutcome::kBusy) : wire_.exec_xrc(wr, *at);
  return with_patience(result, request_waits_since_);
}

TcpStep TcpTarget::whole_request() {
  const std::uint32_t length = current_->length;
  if (!has_payload(*current_)) return fetch(*current_, length);
  if (in_.available() < length) {
    in_.make_room(length);
    return fill(length);
  }
  const ExecResult result = execute(*current_, {in_.data(), length});
  if (result.outcome() == ExecOutcome::kBusy) return TcpStep::kWait;
  moved_ = length;
  if (!result.succeeded() && result.outcome() == ExecOutcome::kReceiverNotReady && is_reliable(service_)) {
    held_.emplace(Held{*current_, 0, true, {in_.data(), in_.data() + length}});
  }
  in_.consume(length);
  if (!result.succeeded()) return settle(result);
  request_done();
  return TcpStep::kGoOn;
}

/// A READ or atomic with few bytes.
TcpStep TcpTarget::fetch(const TcpRequest& request, std::uint32_t length) {
  std::vector<std::byte> bytes(length);
  const ExecResult result = execute(request, bytes);
  if (result.outcome() == ExecOutcome::kBusy) return TcpStep::kWait;
  if (!result.succeeded()) return settle(result);
  count(request);
  const BiasedGuard guard(own_.send_lock());
  out_.respond(bytes);
  current_.reset();
  return out_.is_flooded() ? TcpStep::kBroken : TcpStep::kGoOn;
}

// ---- Past the buffer

TcpStep TcpTarget::stream_in() {
  ibv_sge nothing{};
  ibv_send_wr wr = work_request_of(*current_, nothing);
  std::uint32_t total = current_->length;
  if (is_write(wr.opcode)) {
    wr.opcode = IBV_WR_RDMA_WRITE;
    total -= kWriteTail;
  }
  const std::size_t left = total - std::min(moved_, total);
  if (left == 0) return write_end();
  Inward mover(in_, left, current_->length - total + sizeof(TcpRequest));
  announce(*current_);
  const ExecResult result = wire_.exec_part(wr, total, moved_, mover);
  moved_ += result.bytes();
  if (!result.succeeded()) return settle(result);
  if (moved_ == current_->length) request_done();
  if (result.bytes() != 0) return TcpStep::kGoOn;
  wake_after(left);
  return TcpStep::kWait;
}

/// Makes epoll report the socket only after `bytes` bytes of the current message, or after kLargestPiece. Reading small
/// pieces would also acknowledge small pieces, which costs the sender time.
void TcpTarget::wake_after(std::size_t bytes) noexcept {
  const int wanted = static_cast<int>(std::min(bytes, kLargestPiece));
  if (std::exchange(woken_after_, wanted) != wanted) tcp_wake_after(in_.socket(), wanted);
}

/// The last bytes of a long WRITE, and its immediate data if any.
TcpStep TcpTarget::write_end() {
  if (moved_ != current_->length) {
    wake_after(1);
    if (in_.available() < kWriteTail) return fill(kWriteTail + sizeof(TcpRequest));
    ibv_sge tail{reinterpret_cast<std::uint64_t>(in_.data()), kWriteTail, 0};
    ibv_send_wr wr = work_request_of(*current_, tail);
    wr.opcode = IBV_WR_RDMA_WRITE;
    wr.wr.rdma.remote_addr += moved_;
    const ExecResult result = wire_.exec(wr);
    in_.consume(kWriteTail);
    moved_ = current_->length;
    if (!result.succeeded()) return settle(result);
  }
  const TcpStep step = current_->opcode == IBV_WR_RDMA_WRITE_WITH_IMM ? announce_write() : TcpStep::kGoOn;
  if (step == TcpStep::kGoOn && current_) request_done();
  return step;
}

TcpStep TcpTarget::announce_write() {
  ibv_sge nothing{};
  const ibv_send_wr wr = work_request_of(*current_, nothing);
  Nothing mover;
  announce(*current_);
  const ExecResult result = wire_.exec_part(wr, current_->length, moved_, mover);
  return result.succeeded() ? TcpStep::kGoOn : settle(result);
}

TcpStep TcpTarget::check_read() {
  ibv_sge nothing{};
  const ibv_send_wr wr = work_request_of(*current_, nothing);
  Nothing mover;
  const ExecResult result = wire_.exec_part(wr, current_->length, 0, mover);
  return result.succeeded() ? answer_later() : settle(result);
}

/// Answers a READ with the contents that its memory has when the data is sent.
TcpStep TcpTarget::answer_later() {
  if (queues_) piece_.resize(kReadPiece);
  count(*current_);
  const BiasedGuard guard(own_.send_lock());
  out_.respond_later(*std::exchange(current_, {}));
  return out_.is_flooded() ? TcpStep::kBroken : TcpStep::kGoOn;
}

/// Checks if the memory of a long XRC request may be used, before any of its payload is received.
TcpStep TcpTarget::check_long_xrc() {
  LocalWire* const queue = queues_->get(current_->queue, finder_);
  ibv_sge nothing{};
  const ibv_send_wr wr = work_request_of(*current_, nothing);
  const ExecResult found =
      queue == nullptr ? ExecResult(ExecOutcome::kBusy) : wire_.check_xrc(wr, current_->length, *queue);
  const ExecResult result = with_patience(found, request_waits_since_);
  if (result.outcome() == ExecOutcome::kBusy) return TcpStep::kWait;
  is_unchecked_ = false;
  if (!result.succeeded()) return settle(result);
  return has_payload(*current_) ? TcpStep::kGoOn : answer_later();
}

/// Bytes that do not fit into the socket are copied again next time.
Moved TcpTarget::read_xrc_part(const TcpOutput::Reading& reading) noexcept {
  LocalWire* const queue = queues_->known(reading.request.queue);
  if (queue == nullptr) return {0, EFAULT};
  const std::size_t bytes = std::min<std::size_t>(piece_.size(), reading.request.length - reading.moved);
  ibv_sge slice{reinterpret_cast<std::uint64_t>(piece_.data()), static_cast<std::uint32_t>(bytes), 0};
  ibv_send_wr wr = work_request_of(reading.request, slice);
  wr.wr.rdma.remote_addr += reading.moved;
  const ExecResult result = with_patience(wire_.exec_xrc(wr, *queue), read_waits_since_);
  if (result.outcome() == ExecOutcome::kBusy) return {0, EBUSY};
  if (!result.succeeded()) return {0, EFAULT};
  iovec place{piece_.data(), bytes};
  const Moved moved = tcp_send(in_.socket(), {&place, 1});
  return moved.error == 0 || moved.error == EAGAIN ? moved : Moved{0, EFAULT};
}

Moved TcpTarget::read_part(const TcpOutput::Reading& reading, std::size_t longest) noexcept {
  if (queues_) return read_xrc_part(reading);
  ibv_sge nothing{};
  const ibv_send_wr wr = work_request_of(reading.request, nothing);
  Outward mover(in_.socket(), longest);
  const ExecResult result = wire_.exec_part(wr, reading.request.length, reading.moved, mover);
  if (!result.succeeded()) return {0, EFAULT};
  return {result.bytes(), result.bytes() == 0 ? EAGAIN : 0};
}

// ---- Requests that are not executed

/// Handles a request that was not executed.
TcpStep TcpTarget::settle(const ExecResult& result) {
  wake_after(1);
  skipping_ = has_payload(*current_) ? current_->length - moved_ : 0;
  if (service_ == Service::kUnreliable && result.outcome() != ExecOutcome::kLost) {
    traffic_.add(Count::kDiscarded);
    out_.one_is_done();
    current_.reset();
    return TcpStep::kGoOn;
  }
  return result.outcome() == ExecOutcome::kReceiverNotReady ? hold() : fail(result);
}

TcpStep TcpTarget::hold() {
  if (!held_) held_.emplace(Held{*current_, moved_, false, {}});
  current_.reset();
  throws_away_ = true;
  traffic_.add(Count::kNotReadySent);
  return send_answer(TcpAnswer::kNotReady) ? TcpStep::kGoOn : TcpStep::kBroken;
}

TcpStep TcpTarget::fail(const ExecResult& result) {
  const bool refused = has_refused_ = result.is_done();
  (void)send_answer(refused ? TcpAnswer::kFailed : TcpAnswer::kUnreachable, refused ? result.status() : IBV_WC_SUCCESS);
  return TcpStep::kClose;
}

ExecResult TcpTarget::execute_held() {
  if (held_->whole) return execute(held_->request, held_->bytes);
  ibv_sge nothing{};
  const ibv_send_wr wr = work_request_of(held_->request, nothing);
  Nothing mover;
  announce(held_->request);
  return wire_.exec_part(wr, held_->request.length, held_->moved, mover);
}

/// Executes the request that was put aside, if it has a receive now. A long SEND must be sent again by the initiator.
TcpStep TcpTarget::look_again() {
  if (!held_) return TcpStep::kGoOn;
  const ExecResult result = execute_held();
  const bool waits = result.outcome() == ExecOutcome::kReceiverNotReady || result.outcome() == ExecOutcome::kBusy;
  if (waits) return TcpStep::kWait;
  if (!result.succeeded()) return fail(result);
  if (held_->whole || held_->request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM) {
    count(held_->request);
    out_.one_is_done();
  }
  held_.reset();
  return send_answer(TcpAnswer::kReady) ? TcpStep::kGoOn : TcpStep::kBroken;
}

/// Counts a request that was executed. For a READ or atomic, its answer is counted, too.
void TcpTarget::count(const TcpRequest& request) noexcept {
  const ibv_wr_opcode opcode = opcode_of(request);
  if (takes_receive(opcode)) traffic_.add(Count::kReceives);
  if (has_payload(request)) return traffic_.add_received(request.length, packet_bytes_);
  traffic_.add(Count::kReceivedPackets);
  traffic_.add_sent(request.length, packet_bytes_);
}

void TcpTarget::request_done() {
  count(*current_);
  out_.one_is_done();
  wake_after(1);
  current_.reset();
}

/// Returns  false: the peer causes more output than a correct peer can.
bool TcpTarget::send_answer(TcpAnswer::Kind kind, ibv_wc_status status) {
  const BiasedGuard guard(own_.send_lock());
  TcpAnswer answer;
  answer.kind = kind;
  answer.status = static_cast<std::uint8_t>(status);
  answer.rnr_timer = static_cast<std::uint8_t>(wire_.rnr_timer_code());
  out_.send_answer(answer);
  return !out_.is_flooded();
}

}  // namespace rdmacomm::softdev
