// local_wire.h - requests to a target on the same host: the CPU of the posting thread does the work of a NIC.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "softdev/common/copier.h"
#include "softdev/common/moved.h"
#include "softdev/host/traffic.h"
#include "softdev/local/link_terms.h"
#include "softdev/local/peer.h"
#include "softdev/local/wire.h"
#include "softdev/memory/known_registration.h"

namespace rdmacomm::softdev {

class MrTable;
class PeerDirectory;

/// The parts of a context that its wires use. Outlives the wires.
struct LocalPremises {
  const MrTable& registrations;
  PeerDirectory& peers;
  Traffic& traffic;
  const bool membarrier;  ///< this process can take part in membarrier(2), see hazard.h
};

/// The local end of a wire.
struct LocalEnd {
  const LocalPremises* premises = nullptr;
  std::uint32_t qpn = 0;
  std::uint32_t pd = 0;
  std::uint32_t path_mtu = 0;                        ///< bytes
  Service service = Service::kReliable;              ///< of both ends
  const std::atomic<std::uint32_t>* qkey = nullptr;  ///< for datagrams: the local Q_Key
  bool by_tcp = false;           ///< the initiator is on another host, and its requests arrive over TCP
  std::uint32_t read_depth = 0;  ///< maximum number of READs and atomics at a time that it accepts

  /// The hazard flag's value if initiators take turns. The number of a queue pair on another host must not equal that
  /// of a local queue pair.
  [[nodiscard]] std::uint32_t turn() const noexcept { return by_tcp ? 1U << 31 | qpn : qpn; }
  /// The same end, for the shared receive queues of XRC requests that arrive at queue pair `target_qpn`. For an
  /// initiator on another host, it has the number of that queue pair, which is local. So the owner of the shared
  /// receive queue notices when that queue pair's process dies.
  [[nodiscard]] LocalEnd at_xrc_queue(std::uint32_t target_qpn) const noexcept {
    LocalEnd end = *this;
    end.service = Service::kXrcQueue;
    if (by_tcp) end.qpn = target_qpn;
    end.by_tcp = false;
    return end;
  }
};

/// The Q_Key of a datagram.
[[nodiscard]] inline std::uint32_t datagram_key(const ibv_send_wr& wr, const LocalEnd& own) noexcept {
  constexpr std::uint32_t kOwnKey = 1U << 31;  // source: InfiniBand specification, volume 1, section 10.2.5
  const std::uint32_t named = wr.wr.ud.remote_qkey;
  return (named & kOwnKey) != 0 ? own.qkey->load(std::memory_order_relaxed) : named;
}

/// Moves bytes between a socket and a target's memory.
class PartMover {
 public:
  PartMover() = default;
  PartMover(const PartMover&) = delete;
  PartMover& operator=(const PartMover&) = delete;
  virtual ~PartMover() = default;
  /// Moves the bytes that can be moved without waiting. May change `places`.
  [[nodiscard]] virtual Moved move(std::span<iovec> places) noexcept = 0;
};

class LocalWire final : public Wire {
 public:
  LocalWire(const LocalEnd& own, std::uint32_t target_qpn) noexcept;
  ~LocalWire() override;

  /// Returns  0: the target was found, or may exist later; EPERM, EPROTO: it can never be reached; an errno value with
  ///          is_own_shortage(): this process lacks resources.
  [[nodiscard]] int connect();
  /// Looks for the target, unless it is known already. May wait for its answer.
  void attach() noexcept { (void)find_target(); }
  [[nodiscard]] bool lacks_target() const noexcept override { return remote_ == nullptr; }
  void begin(const LinkTerms& terms, std::uint32_t life) noexcept override;
  [[nodiscard]] std::string why_unreachable() const override;
  [[nodiscard]] std::uint32_t target_read_depth() const noexcept override;
  void expect_reads(std::uint32_t count) noexcept override { reads_ = count; }
  [[nodiscard]] std::unique_ptr<TargetSearch> search() const override;
  void take_found(TargetSearch& search) noexcept override;
  [[nodiscard]] ExecResult exec(const ibv_send_wr& wr) noexcept override;
  /// The same for a datagram. Returns kReceiverNotReady if the target has no receive.
  [[nodiscard]] ExecResult send_datagram(const ibv_send_wr& wr) noexcept;
  /// The same for an XRC request. Its target is the queue pair that this wire leads to; memory and receives are those
  /// of the shared receive queue that `queue` leads to. Returns kBusy if another initiator is at work there and the
  /// request came from another host, because such a request does not wait.
  [[nodiscard]] ExecResult exec_xrc(const ibv_send_wr& wr, LocalWire& queue) noexcept;
  /// Checks if a READ or WRITE of `total` bytes would be executed. The bytes need not have arrived. Returns done() with
  /// no bytes, or the result that exec_xrc() would have.
  [[nodiscard]] ExecResult check_xrc(const ibv_send_wr& wr, std::uint32_t total, LocalWire& queue) noexcept;
  /// True if the target exists and accepts requests from this initiator.
  [[nodiscard]] bool is_up() const noexcept;
  /// Executes the next part of a SEND, WRITE or READ of `total` bytes, of which `done` are done. Only for a target in
  /// this process. `mover` replaces the request's slices as source or destination of the bytes. For a WRITE with
  /// immediate data, this is only its last part, which has no bytes.
  /// Returns  done with success: the number of further bytes, 0 if none can be moved now.
  [[nodiscard]] ExecResult exec_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done,
                                     PartMover& mover) noexcept;
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept override;
  [[nodiscard]] pid_t target_process() const noexcept override { return peer_ == nullptr ? 0 : peer_->process(); }
  void report_refused(ibv_wc_status status) noexcept override;
  [[nodiscard]] std::uint32_t target_device() const noexcept override {
    return remote_ == nullptr ? TrafficCell::kElsewhere : remote_->device;
  }

 private:
  class Search;
  /// Looks for the target, unless it is known already. Returns 0, or the reason of the failure.
  int find_target() noexcept;
  /// A checked range of target memory. `base` is its mapping; if nullptr, it is reached as its registration says.
  struct TargetRange {
    std::byte* base = nullptr;
    std::uint64_t address = 0;  ///< as in requests
  };

  /// Runs `work` while the target is protected from going down. Then sends the target the reports that are due.
  template <typename Work>
  ExecResult at_target(Work&& work) noexcept;
  /// The same for a request whose slices are checked first. `work` is called with the payload's size.
  template <typename Work>
  ExecResult checked_at_target(const ibv_send_wr& wr, Work&& work) noexcept;
  /// Executes a WRITE of one packet and one slice that uses the same registrations as the WRITE before it. Returns
  /// false: the WRITE is a different one, or the registrations have changed. Then nothing was done.
  [[nodiscard]] bool write_again(const ibv_send_wr& wr) noexcept;
  [[gnu::noinline]] ExecResult exec_otherwise(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] bool fits_in_slot(std::uint32_t bytes) const noexcept;
  [[nodiscard]] bool exceeds_mtu(std::uint32_t bytes) const noexcept;
  ExecResult carry_out(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult send_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done, PartMover& mover) noexcept;
  ExecResult announce(const ibv_send_wr& wr, std::uint32_t total) noexcept;
  ExecResult access_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done, PartMover& mover) noexcept;
  [[nodiscard]] int places_in_receive(const RecvEntry& recv, std::uint32_t done, std::uint32_t total,
                                      std::span<iovec> places) const noexcept;
  [[nodiscard]] int invalidate(std::uint32_t key) noexcept;
  ExecResult exec_send(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  [[gnu::noinline]] ExecResult hand_over(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult place(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult deliver_datagram(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult deliver_xrc(const ibv_send_wr& wr, std::uint32_t bytes, LocalWire& queue) noexcept;
  [[nodiscard]] ibv_wc_status check_rules(const ibv_send_wr& wr, std::uint32_t bytes) const noexcept;
  [[nodiscard]] ibv_wc_status check_queue(const ibv_send_wr& wr, std::uint32_t bytes, LocalWire& queue) const noexcept;
  void report_refusal(ibv_wc_status status, std::uint32_t life) noexcept;
  void release_target() noexcept;
  [[gnu::noinline]] bool establish() noexcept;
  /// True if the target accepts requests, also if this is the first one.
  [[nodiscard]] bool accepts_requests() noexcept;
  ExecResult exec_send_and_invalidate(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult exec_write(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  void write_mapped(const ibv_send_wr& wr, std::byte* to) noexcept;
  void remember(const ibv_send_wr& wr, std::uint64_t shift) noexcept;
  [[nodiscard]] int write_unmapped(const ibv_send_wr& wr, std::uint64_t to) noexcept;
  ExecResult exec_read(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult exec_atomic(const ibv_send_wr& wr) noexcept;
  ExecResult exec_atomic_write(const ibv_send_wr& wr) noexcept;
  ExecResult exec_flush(const ibv_send_wr& wr) noexcept;
  /// True if the target does not accept another READ or atomic.
  [[nodiscard]] bool exceeds_read_depth() const noexcept;
  /// Finds the word of an atomic operation. Returns IBV_WC_SUCCESS, or the reason of a refusal.
  [[nodiscard]] ibv_wc_status find_word(std::uint32_t key, std::uint64_t address, std::uint32_t access,
                                        TargetRange& at) noexcept;

  [[nodiscard]] bool local_slices_valid(const ibv_send_wr& wr, std::uint64_t& bytes) const noexcept;
  [[nodiscard]] bool receive_posted() noexcept;
  /// The same for a target that shares its receives: takes one for the current message.
  [[nodiscard]] bool take_shared_receive() noexcept;
  /// The receive for the current message.
  [[nodiscard]] RecvEntry& receive() const noexcept;
  /// The upper bound for the end of its scatter list, independent of its own count.
  [[nodiscard]] const ibv_sge* end_of(const RecvEntry& recv) const noexcept {
    const std::uint32_t stride = srq_.shared == nullptr ? view_.stride : srq_.stride;
    return reinterpret_cast<const ibv_sge*>(reinterpret_cast<const std::byte*>(&recv) + stride);
  }
  /// True if the target's queue pair allows this access, IBV_ACCESS_REMOTE_*.
  [[nodiscard]] bool permits(std::uint32_t access) const noexcept;
  /// The registration of the range if it allows the access; else nullptr.
  [[nodiscard]] const MrEntry* find_allowed(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                                            std::uint64_t length, std::uint32_t access) const noexcept;
  [[nodiscard]] bool find(std::uint32_t key, std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                          std::uint32_t access, TargetRange& range) noexcept;
  /// The registration in which find() has found a range.
  [[nodiscard]] const MrEntry& registration(std::uint32_t key) const noexcept {
    return target_registrations_[place_of(key)];
  }
  /// kWrite: copies from `own` to the target's memory; kRead: from there to `own`. Returns 0, or an errno value.
  [[nodiscard]] int copy_unmapped(RequestKind kind, std::byte* own, std::uint64_t address, std::uint32_t key,
                                  std::size_t bytes) noexcept;
  /// The same by system calls. EPERM: not allowed on this system, so the serving thread must do it. EACCES: the
  /// registration has ended.
  [[nodiscard]] int write_by_address(std::byte* own, std::uint64_t address, std::uint32_t key,
                                     std::size_t bytes) noexcept;
  [[nodiscard]] int write_piece(std::byte* own, std::uint64_t address, std::uint32_t key, std::size_t& bytes) noexcept;
  [[nodiscard]] int read_by_address(std::byte* own, std::uint64_t address, std::uint32_t key,
                                    std::size_t bytes) noexcept;
  [[nodiscard]] int copy_out(const TargetRange& to, std::uint32_t key, std::byte* from, std::size_t bytes) noexcept;
  [[nodiscard]] int copy_in(std::byte* to, const TargetRange& from, std::uint32_t key, std::size_t bytes) noexcept;
  [[nodiscard]] int scatter(const ibv_send_wr& wr, RecvEntry& recv, std::uint32_t bytes) noexcept;
  void publish(const ibv_send_wr& wr, ibv_wc_status status, std::uint32_t bytes, bool eager) noexcept;
  [[nodiscard]] ExecResult failed_copy(int error) const noexcept;

  const LocalEnd own_;
  const std::uint32_t target_qpn_;
  LinkTerms terms_;               // of the requests
  std::uint32_t life_ = 0;        // of the initiator, see begin()
  std::uint32_t reads_ = 1;       // see expect_reads()
  std::uint64_t link_ = kNoLink;  // required value of the link word; kNoLink: the first request computes it
  std::shared_ptr<Peer> peer_;
  std::unique_ptr<RemoteQp> remote_;
  // Used by each request, once attached. Copies of members of remote_ and peer_, to save an indirection.
  QpShared* target_ = nullptr;
  QpView view_;
  SrqView srq_;
  const std::atomic<std::uint32_t>* recv_floor_ = nullptr;
  std::uint32_t eager_bytes_ = InSlot::kEagerBytes;
  std::span<const MrEntry> own_registrations_;
  std::span<const MrEntry> target_registrations_;
  bool by_membarrier_ = false;
  const void* next_line_ = nullptr;  // the first line that the next SEND will write
  // Registrations of the last WRITE of one slice: the local one, and the target's with the shift to its local mapping.
  KnownRegistration written_from_;
  KnownRegistration written_to_;
  Copier copier_;
  // The registrations used last, to avoid most lookups in the peer's table of mappings.
  struct Cached {
    std::uint64_t stamp = 0;
    std::byte* start = nullptr;
  };
  std::array<Cached, 8> cache_;
};

}  // namespace rdmacomm::softdev
