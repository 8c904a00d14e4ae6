// peer.h - an initiator's view of a target context: its connection, registrations and memory.
#pragma once

#include <sys/uio.h>

#include <atomic>
#include <cerrno>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <span>

#include "base/unique_fd.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// A target's queue pair, mapped into the initiator, with the descriptor that wakes its waiting thread.
struct RemoteQp {
  Mapping mapping;
  Mapping cq_mapping;
  Mapping srq_mapping;
  std::shared_ptr<const UniqueFd> channel;  ///< owns wake_fd
  int wake_fd = -1;                         ///< eventfd of the receive queue's completion channel; -1: none
  QpView view;
  SrqView srq;  ///< srq.shared is nullptr if it has none
  CqShared* recv_cq = nullptr;
  std::uint64_t busy_address = 0;  ///< of view.shared->busy in the target process
  std::uint32_t pd = 0;
  std::uint32_t recv_pd = 0;  ///< of the posted receives
  std::uint32_t device = 0;   ///< its index
  XrcIdentity xrc_domain;
};

/// True if a connection failed because this process lacks resources. Waiting for the peer does not help then.
[[nodiscard]] constexpr bool is_own_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/// A connection to the context that owns one block of queue pair numbers. All queue pairs that are connected into that
/// block share it.
/// Threads: any.
class Peer {
 public:
  /// Connects to the owner of `qpn`.
  /// error  ECONNREFUSED: no such owner; EPERM: another user owns it, or one of the two processes must not inspect the
  ///        other, see AccessProof; EPROTO: another version of this device
  [[nodiscard]] static std::shared_ptr<Peer> connect(std::uint32_t qpn, int& error);

  /// The same, with an existing connection to process `pid`.
  [[nodiscard]] static std::shared_ptr<Peer> connect_by(UniqueFd socket, pid_t pid, int& error);
  /// True if the block of `qpn` belongs to a process that must not share memory with this process, according to the
  /// socket's credentials.
  [[nodiscard]] static bool is_another_users(std::uint32_t qpn);

  Peer(UniqueFd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  /// The peer's process; 0: it has ended, so another process may have its number. Cost: a system call.
  [[nodiscard]] pid_t process() const noexcept { return has_ended() ? 0 : pid_; }
  [[nodiscard]] bool dead() const noexcept { return dead_.load(std::memory_order_relaxed); }
  void mark_dead() noexcept { dead_.store(true, std::memory_order_relaxed); }

  /// Maps the target's queue pair `qpn`, and announces that `own_qpn` will use it. Returns nullptr and `error` on
  /// failure. ENOENT: it does not exist (yet); is_own_shortage(): this process has no descriptor or no memory.
  [[nodiscard]] std::unique_ptr<RemoteQp> attach(std::uint32_t qpn, std::uint32_t own_qpn, int& error);

  [[nodiscard]] std::span<const MrEntry> registrations() const noexcept { return registrations_; }
  /// The address of `entry`'s memory in this process; nullptr: it cannot be mapped. Valid while the registration is.
  [[nodiscard]] std::byte* map_registration(const MrEntry& entry);

  /// Checks if system calls can reach the target's unmapped memory. Returns 0: they can. EPERM: they are not allowed,
  /// use request(). ESRCH: the target has ended. Cost: a system call.
  [[nodiscard]] int check_system_calls() const noexcept;
  /// Copies from that memory. Returns 0, or an errno value of check_system_calls() or of the copying call.
  [[nodiscard]] int read_by_system_call(std::byte* own, std::uint64_t address, std::size_t length) noexcept;
  /// Copies `length` bytes and then `flag` to the places in `write`, by one system call. Call check_system_calls()
  /// before. Returns 0, with the number of copied bytes in `length`, 0 if the call was interrupted; or an errno value.
  /// EFAULT: may also mean that the target has taken `write` back.
  [[nodiscard]] int write_by_system_call(std::byte* own, AddressWrite& write, std::size_t& length,
                                         std::uint32_t flag) noexcept;
  /// Sends a request to the target's serving thread: kWrite, kRead, kFetchAdd, kCompareSwap, kAtomicWrite or
  /// kInvalidate. Returns 0, or an errno value.
  [[nodiscard]] int request(Request request, std::span<std::byte> own, std::uint64_t* value);
  /// Reports to the target that a request broke its rules. Does not wait for an answer.
  void report_failure(std::uint32_t qpn, ibv_event_type event, std::uint32_t life) noexcept {
    send_report(RequestKind::kFail, qpn, 0, static_cast<std::uint32_t>(event), life);
  }
  /// Reports to the target that its shared receive queue has fewer receives than its limit.
  void report_limit(std::uint32_t qpn) noexcept { send_report(RequestKind::kLimit, qpn, 0, 0); }
  /// Reports to the target that its first request has arrived.
  void report_contact(std::uint32_t qpn) noexcept { send_report(RequestKind::kContact, qpn, 0, 0); }
  /// Reports to a target that went down during a request that the request has ended.
  void report_release(std::uint32_t qpn) noexcept { send_report(RequestKind::kReleased, qpn, 0, 0); }
  /// Reports to the target that the result of attach(qpn, own_qpn) is unmapped.
  void detach(std::uint32_t qpn, std::uint32_t own_qpn) noexcept { send_report(RequestKind::kDetach, qpn, own_qpn, 0); }
  /// A report that does not fit into the socket (the target is stopped) is kept and sent later, after all earlier ones.
  /// So no thread waits for a target that does not read. `watch` is called with true if a report is kept: call
  /// send_kept_reports() when the socket becomes writable.
  void keep_reports_with(std::function<void(bool wanted)> watch);
  /// Sends the kept reports that fit into the socket. Then calls `watch`; true: some reports are left.
  void send_kept_reports() noexcept;

 private:
  /// A process has at most 65,530 mappings by default, which the program needs, too. A target that registers and
  /// deregisters all the time would use them up. Further registrations are accessed by system calls.
  static constexpr std::size_t kMostMapped = 16384;
  struct MappedRegistration {
    std::uint64_t stamp = 0;
    Mapping mapping;
    std::byte* start = nullptr;
  };

  /// True if the process has ended or runs another program (exec). Its process number and addresses are no longer valid
  /// then. Cost: a system call.
  [[nodiscard]] bool has_ended() const noexcept;
  [[nodiscard]] int error_of_call(ssize_t moved) noexcept;
  int hello();
  /// Each process proves to the other that they may share memory. Returns 0 and `answer` with the peer's proof, or an
  /// errno value.
  int prove_locked(Answer& answer);
  void send_report(RequestKind kind, std::uint32_t qpn, std::uint32_t own_qpn, std::uint32_t argument,
                   std::uint64_t operand = 0) noexcept;
  int call_locked(Request& request, std::span<const std::byte> out, Answer& answer, std::span<std::byte> in,
                  UniqueFd& fd);
  int arena_fd_locked(Arena arena);
  [[nodiscard]] int map(const Answer& answer, RemoteQp& remote);
  [[nodiscard]] int find_channel_locked(std::uint32_t qpn, std::uint32_t number, RemoteQp& remote);

  const UniqueFd socket_;
  const pid_t pid_;
  UniqueFd process_;  // a pidfd; not valid: the system does not support it
  std::atomic<bool> dead_{false};
  std::atomic<bool> system_calls_refused_{false};
  UniqueFd segment_fd_;
  Mapping registrations_mapping_;
  std::span<const MrEntry> registrations_;

  std::mutex mutex_;  // guards the members below; one request at a time uses the socket
  std::uint32_t next_sequence_ = 1;
  std::map<Arena, UniqueFd> arena_fds_;
  std::map<std::uint32_t, MappedRegistration> mapped_;  // by index in the table
  // By number. All queue pairs that report to one channel share its descriptor, because queue pairs may outnumber
  // descriptors.
  std::map<std::uint32_t, std::weak_ptr<const UniqueFd>> channels_;

  std::mutex reports_mutex_;  // guards the members below
  std::deque<Request> kept_reports_;
  std::function<void(bool)> watch_;
};

}  // namespace rdmacomm::softdev
