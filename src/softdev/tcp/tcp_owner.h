// tcp_owner.h - a queue pair as its connections to other hosts, and the service that has them, use it.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>

#include "base/biased_lock.h"
#include "base/unique_fd.h"
#include "softdev/common/moved.h"
#include "softdev/shared/layout.h"
#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

class TcpConnection;
class TcpInput;

/// A queue pair that other hosts' requests are carried out for, and whose own requests go to other hosts.
/// Threads: any.
class TcpOwner {
 public:
  /// What is read without a call. The references stay valid as long as the queue pair.
  struct Parts {
    std::uint32_t number;
    std::uint32_t pd;  ///< 0: it has none
    const QpShared& shared;
    const std::atomic<std::uint32_t>& polled;  ///< messages that were polled
    BiasedLock& send_lock;
  };

  explicit TcpOwner(const Parts& parts) noexcept : parts_(parts) {}
  TcpOwner(const TcpOwner&) = delete;
  TcpOwner& operator=(const TcpOwner&) = delete;
  virtual ~TcpOwner() = default;

  [[nodiscard]] std::uint32_t number() const noexcept { return parts_.number; }
  [[nodiscard]] std::uint32_t pd_number() const noexcept { return parts_.pd; }
  [[nodiscard]] std::uint32_t path_mtu() const noexcept {
    return parts_.shared.path_mtu.load(std::memory_order_relaxed);
  }
  /// Messages that have come to this queue pair, and that were polled.
  [[nodiscard]] std::uint32_t messages_arrived() const noexcept { return parts_.shared.taken; }
  [[nodiscard]] std::uint32_t messages_polled() const noexcept { return parts_.polled.load(std::memory_order_relaxed); }
  [[nodiscard]] BiasedLock& send_lock() noexcept { return parts_.send_lock; }
  /// An initiator that claims to be the peer is about to be asked back, one at a time. false: another one is being asked.
  [[nodiscard]] bool begin_question() noexcept { return !is_questioned_.exchange(true, std::memory_order_relaxed); }
  void end_question() noexcept { is_questioned_.store(false, std::memory_order_relaxed); }

  /// Whether it accepts requests by TCP of queue pair `initiator_qpn` at address `from`.
  [[nodiscard]] virtual bool expects(std::uint32_t initiator_qpn, Service service, const ibv_gid& from) noexcept = 0;
  /// Whether this queue pair has sent that greeting to `target_qpn`.
  [[nodiscard]] virtual bool has_greeted(std::uint32_t target_qpn, std::uint64_t token) noexcept = 0;
  /// Whether the initiator that has shown this secret is the one that it is connected to. `own`: the secret to be shown to it.
  [[nodiscard]] virtual bool admits(const TcpSecret& shown, TcpSecret& own) noexcept = 0;
  /// The peer asks this queue pair to connect, because it is not the peer's part.
  virtual void connect_now() noexcept = 0;
  /// Whether it is this queue pair's part to connect, and not the peer's.
  [[nodiscard]] virtual bool connects() noexcept = 0;
  /// Whether its connection to another host carries requests in one direction only.
  [[nodiscard]] virtual bool is_one_way() noexcept = 0;
  /// Goes on with requests to other hosts, when there is something to send or to receive.
  virtual void advance() noexcept = 0;

  /// Uses this connection from now on. What the one before has brought is taken first.
  virtual void adopt(const std::shared_ptr<TcpConnection>& connection) noexcept = 0;
  // What the connection has brought for this queue pair's own requests, see TcpWire. false: no target that follows the protocol
  // says that.
  [[nodiscard]] virtual bool heard(TcpConnection& connection, std::uint32_t done) noexcept = 0;
  [[nodiscard]] virtual bool take(TcpConnection& connection, const TcpAnswer& answer) noexcept = 0;
  /// The next of `left` bytes that a READ of its brings.
  [[nodiscard]] virtual Moved bring(TcpConnection& connection, TcpInput& input, std::uint32_t left) noexcept = 0;
  /// The connection is lost.
  virtual void lose(TcpConnection& connection) noexcept = 0;
  /// The connection ends on this host's side. for_good: this queue pair has failed, and takes no other connection.
  virtual void leave(TcpConnection& connection, bool for_good) noexcept = 0;
  /// Has the connection send what it can.
  virtual void send_by(TcpConnection& connection) noexcept = 0;

 private:
  const Parts parts_;
  std::atomic<bool> is_questioned_{false};
};

/// The queue pairs of one context, by number.
/// Threads: any.
class TcpOwners {
 public:
  TcpOwners() = default;
  TcpOwners(const TcpOwners&) = delete;
  TcpOwners& operator=(const TcpOwners&) = delete;
  virtual ~TcpOwners() = default;

  /// nullptr: there is none with this number.
  [[nodiscard]] virtual std::shared_ptr<TcpOwner> tcp_owner(std::uint32_t qpn) = 0;
  /// The port of the number's block, which nobody else gets: for who will listen there. Not valid: it could not be taken, was given
  /// out before, or is another network namespace's than the caller's.
  [[nodiscard]] virtual UniqueFd take_port(std::uint32_t qpn) = 0;
};

}  // namespace rdmacomm::softdev
