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

/// A target's queue pair as an initiator uses it: mapped, with what wakes its sleeper.
struct RemoteQp {
  Mapping mapping;
  Mapping cq_mapping;
  Mapping srq_mapping;
  std::shared_ptr<const UniqueFd> channel;  ///< owns wake_fd
  int wake_fd = -1;                         ///< the eventfd of the receive queue's completion channel; -1: it has none
  QpView view;
  SrqView srq;  ///< srq.shared is nullptr where it has none
  CqShared* recv_cq = nullptr;
  std::uint64_t busy_address = 0;  ///< of view.shared->busy, in the target's process
  std::uint32_t pd = 0;
  std::uint32_t recv_pd = 0;  ///< of the posted receives
  XrcIdentity xrc_domain;
};

/// Whether a connection failed for want of something in this process: it does not go by waiting for the peer.
[[nodiscard]] constexpr bool is_own_shortage(int error) noexcept {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == ENOBUFS;
}

/// A connection to the context that owns one block of queue pair numbers, shared by all queue pairs that are
/// connected into that block.
/// Threads: any.
class Peer {
 public:
  /// Connects to the owner of `qpn`.
  /// error  ECONNREFUSED: no such owner; EPERM: another user's, or one of the two must not look into the other, see
  ///        AccessProof; EPROTO: another version of this device
  [[nodiscard]] static std::shared_ptr<Peer> connect(std::uint32_t qpn, int& error);

  /// The same by a connection to process `pid` that is there.
  [[nodiscard]] static std::shared_ptr<Peer> connect_by(UniqueFd socket, pid_t pid, int& error);
  /// Whether somebody who is not to share memory with this process has the name of `qpn`'s block, as far as the name's owner says.
  [[nodiscard]] static bool is_another_users(std::uint32_t qpn);

  Peer(UniqueFd socket, pid_t pid) : socket_(std::move(socket)), pid_(pid) {}
  Peer(const Peer&) = delete;
  Peer& operator=(const Peer&) = delete;

  [[nodiscard]] int socket() const noexcept { return socket_.get(); }
  [[nodiscard]] bool dead() const noexcept { return dead_.load(std::memory_order_relaxed); }
  void mark_dead() noexcept { dead_.store(true, std::memory_order_relaxed); }

  /// Maps the target's queue pair `qpn`, announcing that `own_qpn` will use it. nullptr and `error`: ENOENT, there is none (yet);
  /// is_own_shortage(): this process has no descriptor, or no memory.
  [[nodiscard]] std::unique_ptr<RemoteQp> attach(std::uint32_t qpn, std::uint32_t own_qpn, int& error);

  [[nodiscard]] std::span<const MrEntry> registrations() const noexcept { return registrations_; }
  /// Where `entry`'s memory lies in this process; nullptr: it cannot be mapped. Valid while the registration is.
  [[nodiscard]] std::byte* map_registration(const MrEntry& entry);

  /// Whether system calls reach the target's unmapped memory. 0: they do. EPERM: they are not allowed here; the caller goes by
  /// request(). ESRCH: the target has ended. Cost: a system call.
  [[nodiscard]] int check_system_calls() const noexcept;
  /// Copies from that memory. 0, or an errno value: of check_system_calls(), or of the call.
  [[nodiscard]] int read_by_system_call(std::byte* own, std::uint64_t address, std::size_t length) noexcept;
  /// Copies `length` bytes to where `write` says, and then `flag`, by one system call. The caller has called check_system_calls().
  /// 0: `length` is how many were copied, none if the call was interrupted. EFAULT: also if the target has taken `write` back.
  [[nodiscard]] int write_by_system_call(std::byte* own, AddressWrite& write, std::size_t& length,
                                         std::uint32_t flag) noexcept;
  /// Has the target's serving thread do it: kWrite, kRead, kFetchAdd, kCompareSwap, kInvalidate. 0, or an errno value.
  [[nodiscard]] int request(Request request, std::span<std::byte> own, std::uint64_t* value);
  /// Tells the target that a request broke its rules. No answer is awaited.
  void report_failure(std::uint32_t qpn, ibv_event_type event, std::uint32_t life) noexcept {
    tell(RequestKind::kFail, qpn, 0, static_cast<std::uint32_t>(event), life);
  }
  /// Tells the target that its shared receive queue runs low.
  void report_limit(std::uint32_t qpn) noexcept { tell(RequestKind::kLimit, qpn, 0, 0); }
  /// Tells a target that went down while a request used it that the request has ended.
  void report_release(std::uint32_t qpn) noexcept { tell(RequestKind::kReleased, qpn, 0, 0); }
  /// Tells the target that what attach(qpn, own_qpn) returned is unmapped.
  void detach(std::uint32_t qpn, std::uint32_t own_qpn) noexcept { tell(RequestKind::kDetach, qpn, own_qpn, 0); }
  /// A report that finds no room (the target is stopped) is kept, and sent later, behind those before it: nobody waits for a target that does not
  /// read. `watch` is called with true when there is one to send, and the socket is to be looked after: has it room, tell_kept() is due.
  void keep_reports_with(std::function<void(bool wanted)> watch);
  /// Sends what is kept, as far as there is room; then calls `watch` again: true, some is left.
  void tell_kept() noexcept;

 private:
  struct MappedRegistration {
    std::uint64_t stamp = 0;
    Mapping mapping;
    std::byte* start = nullptr;
  };

  /// The process has ended, or runs another program (exec): its process number and its addresses mean something else. Cost: a system
  /// call.
  [[nodiscard]] bool has_ended() const noexcept;
  [[nodiscard]] int error_of_call(ssize_t moved) noexcept;
  int hello();
  /// Each end proves to the other that they may share memory. 0, with what came with the proof, or an errno value.
  int prove_locked(Answer& answer);
  void tell(RequestKind kind, std::uint32_t qpn, std::uint32_t own_qpn, std::uint32_t argument,
            std::uint64_t operand = 0) noexcept;
  int call_locked(Request& request, std::span<const std::byte> out, Answer& answer, std::span<std::byte> in,
                  UniqueFd& fd);
  int arena_fd_locked(Arena arena);
  [[nodiscard]] int map(const Answer& answer, RemoteQp& remote);
  [[nodiscard]] int find_channel_locked(std::uint32_t qpn, std::uint32_t number, RemoteQp& remote);

  const UniqueFd socket_;
  const pid_t pid_;
  UniqueFd process_;  // a pidfd; not valid: the system has none
  std::atomic<bool> dead_{false};
  std::atomic<bool> system_calls_refused_{false};
  UniqueFd segment_fd_;
  Mapping registrations_mapping_;
  std::span<const MrEntry> registrations_;

  std::mutex mutex_;  // guards what follows, and keeps one request at a time on the socket
  std::uint32_t next_sequence_ = 1;
  std::map<Arena, UniqueFd> arena_fds_;
  std::map<std::uint32_t, MappedRegistration> mapped_;  // by index in the table
  // By number. One descriptor serves all queue pairs that report to a channel: there may be more of them than descriptors.
  std::map<std::uint32_t, std::weak_ptr<const UniqueFd>> channels_;

  std::mutex reports_mutex_;  // guards what follows
  std::deque<Request> kept_reports_;
  std::function<void(bool)> watch_;
};

}  // namespace rdmacomm::softdev
