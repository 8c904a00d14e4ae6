#include "softdev/tcp/tcp_datagrams.h"

#include <cerrno>
#include <utility>

#include "softdev/common/device_limits.h"
#include "softdev/common/path_counts.h"
#include "softdev/tcp/datagram_format.h"
#include "softdev/tcp/tcp_service.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMaxUnsent = 256 * 1024;

}  // namespace

TcpDatagrams::TcpDatagrams(TcpService& service, const LocalEnd& own, const Route& route, std::uint32_t target_qpn)
    : service_(service), own_(own), link_(service, route, greeting_of(own, target_qpn), nullptr) {}

ExecResult TcpDatagrams::send(const ibv_send_wr& wr, std::uint32_t bytes) {
  if (unsent() + sizeof(TcpRequest) + sizeof(TcpDatagramAddress) + bytes > kMaxUnsent) {
    advance();
    if (unsent() != 0) {
      const bool lost = Clock::now() - moved_at_ > kVanishedAfter;
      return lost ? ExecResult::done(bytes) : ExecResult(ExecOutcome::kBusy);
    }
  }
  const auto append = [this](const void* data, std::size_t length) {
    const auto* const from = static_cast<const std::byte*>(data);
    out_.insert(out_.end(), from, from + length);
  };
  count(path_counts().tcp);
  if (unsent() == 0) moved_at_ = Clock::now();
  TcpRequest head = head_of(wr, bytes);
  head.key = datagram_key(wr, own_);
  const TcpDatagramAddress address = datagram_address_of(SoftAh::from(wr.wr.ud.ah));
  append(&head, sizeof(head));
  append(&address, sizeof(address));
  for (int i = 0; i < wr.num_sge; ++i) append(reinterpret_cast<const void*>(wr.sg_list[i].addr), wr.sg_list[i].length);
  advance();
  return ExecResult::done(bytes);
}

/// The target never sends, so only the end of the connection makes the socket readable.
void TcpDatagrams::notice_end() {
  std::byte nothing{};
  iovec place{&nothing, sizeof(nothing)};
  if (tcp_receive(socket_.get(), {&place, 1}).error == EAGAIN) return;
  close();
  if (out_done_ == 0) return;  // the next connection sends all of it
  out_.clear();                // the next connection must not begin inside a datagram
  out_done_ = 0;
}

void TcpDatagrams::close() {
  socket_.reset();
  link_.hurry();  // the next datagram tries at once
}

void TcpDatagrams::want_output(bool wanted) {
  if (std::exchange(wants_output_, wanted) == wanted) return;
  service_.change_initiator(socket_.get(), own_.qpn, wanted);
}

void TcpDatagrams::connect() {
  if (socket_) return;
  std::optional<TcpLink::Welcomed> welcomed = link_.advance();
  if (!welcomed) return;
  link_.note_target_exists();
  socket_ = std::move(welcomed->socket);
  wants_output_ = false;
}

void TcpDatagrams::flush() {
  while (socket_ && unsent() != 0) {
    iovec rest{out_.data() + out_done_, unsent()};
    const Moved moved = tcp_send(socket_.get(), {&rest, 1});
    out_done_ += moved.bytes;
    if (moved.bytes != 0) moved_at_ = Clock::now();
    if (moved.error == EAGAIN) break;
    if (moved.error != 0) close();
  }
  if (socket_) want_output(unsent() != 0);
}

void TcpDatagrams::advance() {
  if (socket_) notice_end();
  if (unsent() == 0) return;
  connect();
  flush();
  if (link_.state() == TcpLink::State::kRefused) link_.allow_again();  // another process may have the number later
  if (out_done_ > kMaxUnsent) {
    out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(out_done_));
    out_done_ = 0;
  }
  if (unsent() != 0 && (socket_ || link_.state() != TcpLink::State::kClosed)) return;
  // All is sent. Or the target does not exist, or has ended inside a datagram: then the rest is lost.
  out_.clear();
  out_done_ = 0;
}

}  // namespace rdmacomm::softdev
