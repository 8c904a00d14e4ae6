// tcp_served.h - an object that uses a socket, as TcpService sees it.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>

namespace rdmacomm::softdev {

/// The state of the peer on a connection.
enum class TcpStanding : std::uint8_t {
  kPeer,     ///< a peer, or expected and being asked back
  kUnknown,  ///< it has not identified itself yet
  kOver,     ///< all was sent to it, and it only has to close
};

/// Threads: one at a time, see TcpService.
class TcpServed {
 public:
  TcpServed() = default;
  TcpServed(const TcpServed&) = delete;
  TcpServed& operator=(const TcpServed&) = delete;
  virtual ~TcpServed() = default;

  /// Continues as far as possible without waiting. Returns false: the connection has ended.
  [[nodiscard]] virtual bool progress() = 0;
  [[nodiscard]] virtual int socket() const noexcept = 0;
  /// The epoll events that it waits for; 0: it manages its epoll registration itself.
  [[nodiscard]] virtual std::uint32_t events() const noexcept = 0;
  /// True if the last progress() has received something.
  [[nodiscard]] virtual bool has_received() const noexcept { return true; }
  /// True if reading its socket costs no more than asking epoll about it.
  [[nodiscard]] virtual bool is_brief() const noexcept { return false; }
  /// by_polls  true: polls read its socket from now on, and it leaves the epoll set; false: the reverse.
  virtual void set_read_by_polls(bool /*by_polls*/) {}
  /// True if it waits for something that no socket reports: call progress() again soon.
  [[nodiscard]] virtual bool waits() const noexcept { return false; }
  /// True if it has stopped only to let others continue.
  [[nodiscard]] virtual bool has_more() const noexcept { return false; }
  /// True if its peer is not identified yet, or it only waits for the peer to close: call progress() from time to time.
  [[nodiscard]] virtual bool lingers() const noexcept { return false; }
  /// If there are too many connections, those without a peer are dropped.
  [[nodiscard]] virtual TcpStanding standing() const noexcept { return TcpStanding::kPeer; }
  /// True if it has executed requests without answering yet. owes_much(): many requests.
  [[nodiscard]] virtual bool owes_answer() const noexcept { return false; }
  [[nodiscard]] virtual bool owes_much() const noexcept { return false; }
  /// Sends these answers.
  virtual void answer_what_is_owed() {}
  /// The local queue pair `qpn` is not served any more. comes_again: it may be connected again, and the peer shall try
  /// that. Returns false: the connection does not belong to that queue pair.
  virtual bool forget(std::uint32_t /*qpn*/, bool /*comes_again*/) { return false; }
  /// Queue pair `qpn` leaves a multicast group. Returns false: this is not its membership.
  virtual bool leave(std::uint32_t /*qpn*/, const ibv_gid& /*group*/) { return false; }
  /// For senders of datagrams, which may have to make room for others: the time when the last datagram was taken,
  /// time_point::min() if none was taken. No value: not a sender of datagrams.
  [[nodiscard]] virtual std::optional<std::chrono::steady_clock::time_point> last_taken() const noexcept { return {}; }
  /// A second socket that it waits for, edge-triggered; -1: none.
  [[nodiscard]] virtual int question() const noexcept { return -1; }
  /// The object that uses the socket from now on; nullptr: this one.
  [[nodiscard]] virtual std::shared_ptr<TcpServed> successor() { return nullptr; }
};

}  // namespace rdmacomm::softdev
