#include "softdev/tcp/tcp_wire.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/common/path_counts.h"
#include "softdev/memory/mr_table.h"
#include "softdev/memory/placed_slices.h"
#include "softdev/memory/requests.h"
#include "softdev/tcp/tcp_connection.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {
namespace {

/// If a request is given up, its unsent rest is sent from a copy. If the rest is longer than this, its connection is
/// closed instead.
constexpr std::size_t kMaxCopied = 16 * 1024 * 1024;

/// Converts bytes `done` to the end of `slices` into pieces. Returns the number of pieces.
std::size_t pieces_of(std::span<const ibv_sge> slices, std::size_t done, std::span<iovec> pieces) noexcept {
  std::size_t count = 0;
  for (const ibv_sge& slice : slices) {
    if (done >= slice.length) {
      done -= slice.length;
      continue;
    }
    if (count == pieces.size()) break;
    pieces[count++] = {reinterpret_cast<std::byte*>(slice.addr) + done, slice.length - done};
    done = 0;
  }
  return count;
}

TcpGreeting greeting_for(const LocalEnd& own, const Route& route, std::uint32_t target_qpn, std::uint64_t path,
                         const TcpSecret& secret) {
  TcpGreeting greeting = greeting_of(own, target_qpn);
  greeting.path = path;
  if (connects_to_other(own.service, route, own.qpn, target_qpn)) {
    greeting.secret = secret;
  } else {
    greeting.kind = GreetingKind::kCall;
  }
  return greeting;
}

}  // namespace

std::span<const ibv_sge> TcpWire::UnderWay::slices() const noexcept {
  return placed.empty() ? slices_of(*wr) : std::span<const ibv_sge>(placed);
}

std::size_t TcpWire::UnderWay::pieces(std::size_t done, std::span<iovec> to) {
  std::size_t count = 0;
  if (done < sizeof(head)) {
    to[count++] = {reinterpret_cast<std::byte*>(&head) + done, sizeof(head) - done};
    done = sizeof(head);
  }
  if (payload != 0) count += pieces_of(slices(), done - sizeof(head), to.subspan(count));
  return count;
}

TcpWire::TcpWire(TcpService& service, const LocalEnd& own, const Route& route, std::uint32_t target_qpn,
                 std::uint64_t path, TcpPairing& pairing)
    : service_(service),
      own_(own),
      link_(service, route, greeting_for(own, route, target_qpn, path, pairing.own()), &pairing) {}

TcpWire::~TcpWire() = default;

ibv_wc_status TcpWire::check(const ibv_send_wr& wr, std::uint64_t& bytes, std::vector<ibv_sge>& placed) const {
  const std::span<const MrEntry> table = own_.premises->registrations.entries();
  placed.clear();
  if (!slices_valid(table, own_.pd, wr, bytes)) {
    PlacedSlices there;
    if (!there.place(table, own_.pd, slices_of(wr), needed_locally(wr.opcode))) return IBV_WC_LOC_PROT_ERR;
    placed.assign(there.get().begin(), there.get().end());
    bytes = message_bytes(wr);
  }
  return bytes > kMaxMessageBytes ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

bool TcpWire::start(const ibv_send_wr& wr, std::uint32_t polled) {
  if (!under_way_.empty() && under_way_.back().refused != IBV_WC_SUCCESS) return false;
  const bool brings = brings_bytes(wr.opcode);
  if ((wr.send_flags & IBV_SEND_FENCE) != 0 && bringing_ != 0) return false;
  if (brings && bringing_ >= most_reads_) return false;
  std::uint64_t bytes = 0;
  std::vector<ibv_sge> placed;
  ibv_wc_status status = check(wr, bytes, placed);
  if (status == IBV_WC_SUCCESS && !is_connected()) {
    open();
    if (!is_connected()) return false;
  }
  // It is refused in order, like a request that the target refuses.
  if (brings && is_connected() && bringing_ >= connection_->peer_limits().read_depth) status = IBV_WC_REM_INV_REQ_ERR;
  const std::uint32_t after = is_connected() ? connection_->output().done_for(polled) : 0;
  const auto length = static_cast<std::uint32_t>(bytes);
  count(path_counts().tcp);
  UnderWay& started = under_way_.push_back();
  started = {&wr, length, brings ? 0 : length, after, status, head_of(wr, length), std::move(placed)};
  started.head.psn = psn_;
  if (own_.service == Service::kXrc) started.head.queue = wr.qp_type.xrc.remote_srqn;
  if (brings) ++bringing_;
  return true;
}

// ---- The connection

void TcpWire::open() {
  if (lost_ || is_connected() || comes_) return;
  std::optional<TcpLink::Welcomed> welcomed = link_.advance();
  if (!welcomed) return;
  comes_ = true;
  service_.connected({std::move(welcomed->socket), link_.route(), link_.greeting(), welcomed->limits});
}

void TcpWire::connect_now() {
  link_.hurry();
  open();
}

void TcpWire::adopt(std::shared_ptr<TcpConnection> connection) {
  comes_ = false;
  if (is_connected()) lose();
  const bool untaken = answered_ != first_;  // answers of the previous connection, with its numbers
  if (lost_ || untaken || failure_) return;
  connection_ = std::move(connection);
  link_.note_target_exists();
  first_ = answered_ = abandoned_ = 0;
  sending_ = sent_bytes_ = 0;
  again_ = false;
  restart_.reset();
  receiver_not_ready_ = false;
  // Requests started for the previous connection get new numbers and do not depend on requests of the peer.
  for (std::size_t i = 0; i < under_way_.size(); ++i) under_way_[i].after = 0;
}

void TcpWire::advance() {
  open();
  send();
}

void TcpWire::send() {
  if (!is_connected()) return;
  const int error = connection_->send(this);
  if (error != 0 && error != EAGAIN) lose();
}

void TcpWire::lose() {
  if (!is_connected()) return;
  lost_ = under_way_.size() > answered_ - first_;
  connection_->cut();
  connection_.reset();
}

// ---- Out

std::size_t TcpWire::gather(std::span<iovec> pieces, std::uint32_t done) {
  if (is_in_request()) {
    UnderWay& one = under_way_[sending_];
    return one.refused == IBV_WC_SUCCESS ? one.pieces(sent_bytes_, pieces) : 0;
  }
  std::size_t count = 0;
  bool again = again_;
  for (std::size_t i = sending_; i < under_way_.size() && count + 1 + kMaxSge <= pieces.size(); ++i) {
    UnderWay& one = under_way_[i];
    const bool must_wait = receiver_not_ready_ || static_cast<std::int32_t>(done - one.after) < 0;
    if (one.refused != IBV_WC_SUCCESS || must_wait) break;
    one.head.done = done;
    one.head.again = std::exchange(again, false) ? 1 : 0;
    count += one.pieces(0, pieces.subspan(count));
  }
  return count;
}

void TcpWire::sent(std::size_t bytes) {
  if (bytes == 0) return;
  sent_bytes_ += bytes;
  while (sending_ < under_way_.size() && sent_bytes_ >= under_way_[sending_].whole()) {
    sent_bytes_ -= under_way_[sending_].whole();
    ++sending_;
    again_ = false;
  }
  if (sent_bytes_ == 0 && restart_) restart_at(*std::exchange(restart_, {}) - first_);
}

/// The requests from `index` on are sent again.
void TcpWire::restart_at(std::size_t index) noexcept {
  sending_ = index;
  again_ = true;
}

/// Sends the rest of a partly sent request, because the peer accepts nothing else before it.
void TcpWire::finish_request() {
  std::array<iovec, kMaxSge + 1> pieces;
  UnderWay& one = under_way_[sending_];
  const std::size_t count = one.pieces(sent_bytes_, pieces);
  if (one.whole() - sent_bytes_ > kMaxCopied || !connection_->go_first(std::span(pieces).first(count))) {
    connection_->cut();
  }
  sent_bytes_ = 0;
}

// ---- In

/// True for requests that were abandoned. They are answered, too, and the answers are ignored.
bool TcpWire::is_abandoned(std::uint32_t done) const noexcept {
  return static_cast<std::int32_t>(done - abandoned_) < 0;
}

bool TcpWire::note_executed(std::uint32_t done) {
  if (is_abandoned(done)) return true;
  // A request that has to be sent again cannot be executed before that.
  if (restart_ && done != *restart_) return false;
  const std::uint32_t ahead = done - first_;
  const bool late = static_cast<std::int32_t>(done - answered_) < 0;
  if (late || ahead > std::min(sending_, under_way_.size())) return false;
  // A READ or atomic is answered by its data, not by a count.
  for (std::uint32_t i = answered_ - first_; i < ahead; ++i) {
    if (under_way_[i].refused != IBV_WC_SUCCESS || brings_bytes(under_way_[i].wr->opcode)) return false;
  }
  answered_ = done;
  return true;
}

/// True if the request with this number was sent, at least in part.
bool TcpWire::was_begun(std::uint32_t number) const noexcept {
  return number - first_ < sending_ + (is_in_request() ? 1 : 0) && !restart_;
}

bool TcpWire::take_payload(const TcpAnswer& answer) {
  brought_ = answer.done - 1;
  if (is_abandoned(brought_)) return true;
  const std::uint32_t index = brought_ - first_;
  // The request must have been sent completely, and must not have to be sent again.
  if (restart_ || index >= std::min(sending_, under_way_.size()) || !note_executed(brought_)) return false;
  const UnderWay& read = under_way_[index];
  return brings_bytes(read.wr->opcode) && read.bytes == answer.length;
}

bool TcpWire::take(const TcpAnswer& answer) {
  if (answer.kind == TcpAnswer::kPayload) return take_payload(answer);
  if (is_abandoned(answer.done) && answer.kind != TcpAnswer::kDone)
    return false;  // an abandoned request cannot wait, fail or return data
  if (!note_executed(answer.done)) return false;
  const std::uint32_t ahead = answer.done - first_;
  switch (answer.kind) {
    case TcpAnswer::kDone: return true;
    case TcpAnswer::kNotReady:
      if (receiver_not_ready_ || !was_begun(answer.done)) return false;
      rnr_timer_ = answer.rnr_timer;
      receiver_not_ready_ = true;
      return true;
    case TcpAnswer::kReady:
      if (!receiver_not_ready_) return false;
      receiver_not_ready_ = false;
      if (is_in_request()) {
        restart_ = answer.done;
      } else {
        restart_at(ahead);
      }
      return true;
    case TcpAnswer::kFailed: return was_begun(answer.done) && fail_from(answer);
    case TcpAnswer::kUnreachable: return fail_from(answer);
    default: return false;
  }
}

/// The target executes no more requests.
bool TcpWire::fail_from(const TcpAnswer& answer) {
  if (answer.kind == TcpAnswer::kFailed) {
    const bool named = answer.status == IBV_WC_REM_ACCESS_ERR || answer.status == IBV_WC_REM_INV_REQ_ERR;
    failure_ = named ? static_cast<ibv_wc_status>(answer.status) : IBV_WC_REM_OP_ERR;
  } else {
    for (; under_way_.size() > answered_ - first_; under_way_.pop_back()) forget(under_way_.back());
    sending_ = std::min(sending_, under_way_.size());
    sent_bytes_ = 0;
    link_.put_off();
  }
  connection_->cut();
  connection_.reset();
  return true;
}

Moved TcpWire::bring(TcpInput& input, std::uint32_t left) {
  if (is_abandoned(brought_)) return input.throw_away(left);
  const std::size_t index = answered_ - first_;
  UnderWay& read = under_way_[index];
  std::uint64_t bytes = 0;
  std::array<iovec, kMaxSge> pieces;
  Moved moved{0, EFAULT};
  if (read.refused == IBV_WC_SUCCESS && check(*read.wr, bytes, read.placed) == IBV_WC_SUCCESS) {
    const std::size_t count = pieces_of(read.slices(), read.bytes - left, pieces);
    moved = input.move(std::span(pieces).first(count), left);
  }
  if (moved.error == EFAULT) fail_here(index, IBV_WC_LOC_PROT_ERR);
  return moved;
}

// ---- Ends

void TcpWire::forget(const UnderWay& one) noexcept {
  if (brings_bytes(one.wr->opcode)) --bringing_;
}

void TcpWire::fail_here(std::size_t index, ibv_wc_status status) {
  under_way_[index].refused = status;
}

bool TcpWire::take_answer(ExecResult& result) {
  if (under_way_.empty()) return false;
  const UnderWay& oldest = under_way_.front();
  if (oldest.refused != IBV_WC_SUCCESS) {
    result = ExecResult::refused(oldest.refused);
  } else if (answered_ != first_) {
    result = ExecResult::done(oldest.bytes);
  } else if (failure_) {
    result = ExecResult::refused(*failure_);
  } else {
    return false;
  }
  forget(oldest);
  under_way_.pop_front();
  if (sending_ != 0) {
    --sending_;
    ++first_;  // the target counts it, too
  } else if (is_in_request()) {
    // The target waits for bytes of this request that do not exist any more.
    if (is_connected()) connection_->cut();
    connection_.reset();
    sent_bytes_ = 0;
  }
  return true;
}

ExecOutcome TcpWire::obstacle() const noexcept {
  if (lost_ || link_.state() == TcpLink::State::kRefused) return ExecOutcome::kLost;
  if (!is_connected()) return ExecOutcome::kUnreachable;
  return receiver_not_ready_ ? ExecOutcome::kReceiverNotReady : ExecOutcome::kDone;
}

void TcpWire::has_brought() noexcept {
  if (!is_abandoned(brought_)) ++answered_;
}

/// The connection continues with the peer's requests. It must end only if a local request waits at the target, because
/// that request must not be executed after the wait.
void TcpWire::abandon() {
  if (is_connected() && (receiver_not_ready_ || restart_)) lose();
  if (is_connected() && is_in_request()) {
    finish_request();
    ++sending_;
  }
  abandoned_ = answered_ = first_ += static_cast<std::uint32_t>(sending_);
  under_way_.clear();
  bringing_ = 0;
  sending_ = 0;
  failure_.reset();
  lost_ = false;
}

}  // namespace rdmacomm::softdev
