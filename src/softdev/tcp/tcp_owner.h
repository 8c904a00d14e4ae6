// tcp_owner.h - the interface of a queue pair for its TCP connections and their service.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <vector>

#include "base/biased_lock.h"
#include "base/unique_fd.h"
#include "softdev/common/moved.h"
#include "softdev/shared/layout.h"
#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

class TcpConnection;
class TcpInput;

/// A queue pair that executes requests of other hosts, and sends its own requests to other hosts.
/// Threads: any.
class TcpOwner {
 public:
  /// Members that are read without a virtual call. The references stay valid as long as the queue pair exists.
  struct Parts {
    std::uint32_t number;
    std::uint32_t pd;  ///< 0: it has none
    const QpShared& shared;
    const std::atomic<std::uint32_t>& polled;  ///< number of polled messages
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
  [[nodiscard]] std::uint8_t read_depth() const noexcept {
    return static_cast<std::uint8_t>(parts_.shared.max_dest_rd.load(std::memory_order_relaxed));
  }
  /// The number of messages that have arrived at this queue pair, and the number of polled ones.
  [[nodiscard]] std::uint32_t messages_arrived() const noexcept { return parts_.shared.taken; }
  [[nodiscard]] std::uint32_t messages_polled() const noexcept { return parts_.polled.load(std::memory_order_relaxed); }
  [[nodiscard]] BiasedLock& send_lock() noexcept { return parts_.send_lock; }
  /// Starts asking back an initiator that claims to be the peer; one at a time. Returns false: another one is being
  /// asked.
  [[nodiscard]] bool begin_question() noexcept { return !is_questioned_.exchange(true, std::memory_order_relaxed); }
  void end_question() noexcept { is_questioned_.store(false, std::memory_order_relaxed); }

  /// True if it accepts requests over TCP from queue pair `initiator_qpn` at address `from`. `path` is not checked for
  /// datagrams.
  [[nodiscard]] virtual bool expects(std::uint32_t initiator_qpn, Service service, const ibv_gid& from,
                                     std::uint64_t path) noexcept = 0;
  /// True if this queue pair has sent that greeting to `target_qpn`.
  [[nodiscard]] virtual bool has_sent_greeting(std::uint32_t target_qpn, std::uint64_t token) noexcept = 0;
  /// True if `shown` is the secret of the peer that it is connected to. Then `own` is the secret to show to that peer.
  [[nodiscard]] virtual bool admits(const TcpSecret& shown, TcpSecret& own) noexcept = 0;
  /// The peer asks this queue pair to connect, because the peer must not.
  virtual void connect_now() noexcept = 0;
  /// True if this queue pair has to connect, and not its peer.
  [[nodiscard]] virtual bool connects() noexcept = 0;
  /// True if its connection to another host carries requests in one direction only.
  [[nodiscard]] virtual bool is_one_way() noexcept = 0;
  /// Continues requests to other hosts when a socket can send or receive.
  virtual void advance() noexcept = 0;
  /// True if completed datagrams for other hosts still wait.
  [[nodiscard]] virtual bool has_unsent_datagrams() noexcept = 0;

  /// Uses this connection from now on. Takes the answers of the previous one first.
  virtual void adopt(const std::shared_ptr<TcpConnection>& connection) noexcept = 0;
  // Input of the connection for this queue pair's own requests, see TcpWire. They return false if no correct target
  // sends that.
  [[nodiscard]] virtual bool note_executed(TcpConnection& connection, std::uint32_t done) noexcept = 0;
  [[nodiscard]] virtual bool take(TcpConnection& connection, const TcpAnswer& answer) noexcept = 0;
  /// Receives the next of `left` bytes of data for one of its READs.
  [[nodiscard]] virtual Moved bring(TcpConnection& connection, TcpInput& input, std::uint32_t left) noexcept = 0;
  /// The connection is lost.
  virtual void lose(TcpConnection& connection) noexcept = 0;
  /// The local end closes the connection. for_good: this queue pair has failed and accepts no other connection.
  virtual void note_closing(TcpConnection& connection, bool for_good) noexcept = 0;
  /// Sends everything that the connection can send.
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

  /// Returns  nullptr: no queue pair has this number.
  [[nodiscard]] virtual std::shared_ptr<TcpOwner> tcp_owner(std::uint32_t qpn) = 0;
  [[nodiscard]] virtual std::vector<std::shared_ptr<TcpOwner>> tcp_owners() = 0;
  /// The socket that holds the port of the block of `qpn`, for a listener. Not valid: the port could not be taken, its
  /// socket was handed out before, or the caller is in another network namespace.
  [[nodiscard]] virtual UniqueFd take_port(std::uint32_t qpn) = 0;
};

}  // namespace rdmacomm::softdev
