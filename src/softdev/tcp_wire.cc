#include "softdev/tcp_wire.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "softdev/device_limits.h"
#include "softdev/placed_slices.h"
#include "softdev/requests.h"
#include "softdev/soft_context.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::size_t kInputBuffer = 32 * 1024;
constexpr std::size_t kMostPieces = 128;
/// Of a socket, before others have their turn: the service is told again of what is left there.
constexpr int kMostReads = 256;

/// Bytes `done` to the end of what `slices` are together. How many pieces.
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

}  // namespace

std::span<const ibv_sge> TcpWire::UnderWay::slices() const noexcept {
  return placed.empty() ? slices_of(*wr) : std::span<const ibv_sge>(placed);
}

TcpWire::TcpWire(const LocalEnd& own, const Route& route, std::uint32_t target_qpn)
    : own_(own), link_(*own.context, route, greeting_of(own, target_qpn)), in_(kInputBuffer) {}

ibv_wc_status TcpWire::check(const ibv_send_wr& wr, std::uint64_t& bytes, std::vector<ibv_sge>& placed) const {
  const std::span<const MrEntry> table = own_.context->registrations().entries();
  placed.clear();
  if (!slices_valid(table, own_.pd, wr, bytes)) {
    PlacedSlices there;
    if (!there.place(table, own_.pd, slices_of(wr), needed_locally(wr.opcode))) return IBV_WC_LOC_PROT_ERR;
    placed.assign(there.get().begin(), there.get().end());
    bytes = message_bytes(wr);
  }
  return bytes > kMaxMessageBytes ? IBV_WC_LOC_LEN_ERR : IBV_WC_SUCCESS;
}

bool TcpWire::start(const ibv_send_wr& wr, std::uint32_t heard) {
  if (!under_way_.empty() && under_way_.back().refused != IBV_WC_SUCCESS) return false;
  if ((wr.send_flags & IBV_SEND_FENCE) != 0 && bringing_ != 0) return false;
  std::uint64_t bytes = 0;
  std::vector<ibv_sge> placed;
  const ibv_wc_status status = check(wr, bytes, placed);
  if (status == IBV_WC_SUCCESS && !link_.ready()) {
    advance_link();
    if (!link_.ready()) return false;
  }
  const auto length = static_cast<std::uint32_t>(bytes);
  const bool brings = brings_bytes(wr.opcode);
  under_way_.push_back({&wr, length, brings ? 0 : length, status, head_of(wr, length), std::move(placed)});
  under_way_.back().head.heard = heard;
  if (own_.service == Service::kXrc) under_way_.back().head.queue = wr.qp_type.xrc.remote_srqn;
  if (brings) ++bringing_;
  return true;
}

void TcpWire::advance_link() {
  const bool untaken = answered_ != first_;  // answers of the last connection, by its numbers
  if (lost_ || untaken || link_.ready() || !link_.advance()) return;
  first_ = answered_ = 0;
  sending_ = sent_bytes_ = 0;
  in_begin_ = in_end_ = 0;
  payload_left_ = 0;
  receiver_not_ready_ = false;
}

void TcpWire::advance() {
  advance_link();
  if (!link_.ready()) return;
  send();
  receive();
}

// ---- Out

std::size_t TcpWire::gather_output(std::span<iovec> pieces) {
  std::size_t count = 0;
  std::size_t done = sent_bytes_;
  for (std::size_t i = sending_; i < under_way_.size() && count + 1 + kMaxSge <= pieces.size(); ++i) {
    UnderWay& one = under_way_[i];
    if (one.refused != IBV_WC_SUCCESS) break;
    if (done < sizeof(one.head)) {
      pieces[count++] = {reinterpret_cast<std::byte*>(&one.head) + done, sizeof(one.head) - done};
      done = sizeof(one.head);
    }
    if (one.payload != 0) count += pieces_of(one.slices(), done - sizeof(one.head), pieces.subspan(count));
    done = 0;
  }
  return count;
}

void TcpWire::sent(std::size_t bytes) {
  sent_bytes_ += bytes;
  while (sending_ < under_way_.size() && under_way_[sending_].refused == IBV_WC_SUCCESS) {
    const std::size_t whole = sizeof(TcpRequest) + under_way_[sending_].payload;
    if (sent_bytes_ < whole) return;
    sent_bytes_ -= whole;
    heard_sent_ = under_way_[sending_].head.heard;
    ++sending_;
  }
}

void TcpWire::send() {
  while (link_.ready()) {
    std::array<iovec, kMostPieces> pieces;
    const std::size_t count = gather_output(pieces);
    if (count == 0) return link_.want_output(false);
    const Moved moved = tcp_send(link_.socket(), std::span(pieces).first(count));
    sent(moved.bytes);
    if (moved.error == EAGAIN) return link_.want_output(true);
    if (moved.error == EFAULT) return fail_here(sending_, IBV_WC_LOC_PROT_ERR);
    if (moved.error != 0) return lose();
  }
}

// ---- In

void TcpWire::receive() {
  int reads = kMostReads;
  drained_ = false;
  while (link_.ready()) {
    const bool more = payload_left_ != 0 ? receive_payload(reads) : read_answers(reads);
    if (!more) return;
  }
}

bool TcpWire::receive_payload(int& reads) {
  const std::size_t index = answered_ - first_;
  UnderWay& read = under_way_[index];
  if (read.refused != IBV_WC_SUCCESS) return false;
  std::uint64_t bytes = 0;
  if (check(*read.wr, bytes, read.placed) != IBV_WC_SUCCESS) {
    fail_here(index, IBV_WC_LOC_PROT_ERR);
    return false;
  }
  std::array<iovec, kMaxSge> pieces;
  const std::size_t count = pieces_of(read.slices(), read.bytes - payload_left_, pieces);
  std::size_t moved_bytes = 0;
  for (std::size_t i = 0; i < count && in_begin_ != in_end_; ++i) {
    const std::size_t here = std::min(pieces[i].iov_len, in_end_ - in_begin_);
    std::memcpy(pieces[i].iov_base, in_.data() + in_begin_, here);
    in_begin_ += here;
    moved_bytes += here;
  }
  if (moved_bytes == 0 && reads-- == 0) return false;
  Moved moved{moved_bytes, 0};
  if (moved_bytes == 0) moved = tcp_receive(link_.socket(), std::span(pieces).first(count));
  payload_left_ -= static_cast<std::uint32_t>(moved.bytes);
  if (payload_left_ == 0) ++answered_;
  if (moved.error == EFAULT) {
    fail_here(index, IBV_WC_LOC_PROT_ERR);
  } else if (moved.error != 0 && moved.error != EAGAIN) {
    lose();
  }
  return moved.error == 0;
}

bool TcpWire::read_answers(int& reads) {
  while (in_end_ - in_begin_ >= sizeof(TcpAnswer)) {
    TcpAnswer answer;
    std::memcpy(static_cast<void*>(&answer), in_.data() + in_begin_, sizeof(answer));
    in_begin_ += sizeof(answer);
    take(answer);
    if (!link_.ready() || payload_left_ != 0) return true;
  }
  if (drained_ || reads-- == 0) return false;
  std::memmove(in_.data(), in_.data() + in_begin_, in_end_ - in_begin_);
  in_end_ -= in_begin_;
  in_begin_ = 0;
  iovec place{in_.data() + in_end_, in_.size() - in_end_};
  const Moved moved = tcp_receive(link_.socket(), {&place, 1});
  in_end_ += moved.bytes;
  drained_ = moved.bytes < place.iov_len;
  if (moved.error != 0 && moved.error != EAGAIN) lose();
  return moved.error == 0;
}

void TcpWire::take(const TcpAnswer& answer) {
  // Its request was taken as answered meanwhile: it says nothing new.
  const bool late = static_cast<std::int32_t>(answer.done - answered_) < 0;
  if (late && (answer.kind == TcpAnswer::kDone || answer.kind == TcpAnswer::kNotReady)) return;
  const std::uint32_t ahead = answer.done - first_;
  const std::uint32_t known = answered_ - first_;
  if (late || ahead > sending_) return lose();  // no target says that
  const bool waits = answer.kind == TcpAnswer::kNotReady;
  // It takes nothing while it waits, and that may be long.
  if (waits != receiver_not_ready_) tcp_expect_progress(link_.socket(), !waits);
  receiver_not_ready_ = waits;
  rnr_timer_ = answer.rnr_timer;
  if (answer.kind == TcpAnswer::kPayload) {
    const bool is_read = ahead > known && brings_bytes(under_way_[ahead - 1].wr->opcode);
    if (!is_read || under_way_[ahead - 1].bytes != answer.length) return lose();
    answered_ = answer.done - 1;
    payload_left_ = answer.length;
    if (payload_left_ == 0) ++answered_;
    return;
  }
  answered_ = answer.done;
  if (answer.kind == TcpAnswer::kFailed) {
    const bool named = answer.status == IBV_WC_REM_ACCESS_ERR || answer.status == IBV_WC_REM_INV_REQ_ERR;
    failure_ = named ? static_cast<ibv_wc_status>(answer.status) : IBV_WC_REM_OP_ERR;
    link_.close();
  } else if (answer.kind == TcpAnswer::kUnreachable) {
    for (; under_way_.size() > ahead; under_way_.pop_back()) forget(under_way_.back());
    sending_ = ahead;
    sent_bytes_ = 0;
    link_.close();
  }
}

// ---- Ends

void TcpWire::lose() {
  lost_ = under_way_.size() > answered_ - first_;
  link_.close();
}

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
  ++first_;
  if (sending_ != 0) --sending_;
  return true;
}

void TcpWire::take_as_answered(std::uint32_t messages) noexcept {
  if (!link_.ready() || payload_left_ != 0) return;
  for (std::size_t next = answered_ - first_; messages != 0 && next < sending_; ++next) {
    const UnderWay& one = under_way_[next];
    if (one.refused != IBV_WC_SUCCESS || brings_bytes(one.wr->opcode)) return;
    if (!takes_receive(one.wr->opcode)) continue;
    --messages;
    answered_ = first_ + static_cast<std::uint32_t>(next) + 1;
  }
}

ExecOutcome TcpWire::obstacle() const noexcept {
  if (lost_ || link_.state() == TcpLink::State::kRefused) return ExecOutcome::kLost;
  if (!link_.ready()) return ExecOutcome::kUnreachable;
  return receiver_not_ready_ ? ExecOutcome::kReceiverNotReady : ExecOutcome::kDone;
}

void TcpWire::abandon() {
  under_way_.clear();
  bringing_ = 0;
  first_ = answered_ = 0;
  sending_ = sent_bytes_ = 0;
  failure_.reset();
  lost_ = false;
  link_.close();
}

}  // namespace rdmacomm::softdev
