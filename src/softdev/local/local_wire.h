// local_wire.h - requests to a target on the same host: the poster's CPU does what a NIC would.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <span>

#include "softdev/common/copier.h"
#include "softdev/common/moved.h"
#include "softdev/local/peer.h"
#include "softdev/local/wire.h"
#include "softdev/memory/known_registration.h"

namespace rdmacomm::softdev {

class MrTable;
class PeerDirectory;

/// What the wires of a context use of it. Lives longer than they do.
struct LocalPremises {
  const MrTable& registrations;
  PeerDirectory& peers;
  const bool membarrier;  ///< this process can take part in membarrier(2), see hazard.h
};

/// What the wire must know of its own end.
struct LocalEnd {
  const LocalPremises* premises = nullptr;
  std::uint32_t qpn = 0;
  std::uint32_t pd = 0;
  std::uint32_t path_mtu = 0;                        ///< bytes
  Service service = Service::kReliable;              ///< of both ends
  const std::atomic<std::uint32_t>* qkey = nullptr;  ///< of datagrams: its own
  bool by_tcp = false;                               ///< it is on another host, and its requests come by TCP

  /// What it holds up where initiators take turns. Another host's number says nothing here, and is none of this host's.
  [[nodiscard]] std::uint32_t turn() const noexcept { return by_tcp ? 1U << 31 | qpn : qpn; }
  /// The same end at the shared receive queues that XRC requests by queue pair `target_qpn` name. Another host's is there
  /// under the number of that queue pair, which is one of this host's: who owns the queue sees its process die.
  [[nodiscard]] LocalEnd at_xrc_queue(std::uint32_t target_qpn) const noexcept {
    LocalEnd end = *this;
    end.service = Service::kXrcQueue;
    if (by_tcp) end.qpn = target_qpn;
    end.by_tcp = false;
    return end;
  }
};

/// The Q_Key that a datagram carries.
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
  /// As much as there is without waiting; `places` may be changed.
  [[nodiscard]] virtual Moved move(std::span<iovec> places) noexcept = 0;
};

class LocalWire final : public Wire {
 public:
  LocalWire(const LocalEnd& own, std::uint32_t target_qpn) noexcept;
  ~LocalWire() override;

  /// 0: the target was found, or may come yet; EPERM, EPROTO: it never can be reached; is_own_shortage(): not as things are here.
  [[nodiscard]] int connect();
  /// Looks for the target, where it is not found yet. May wait for it to answer.
  void attach() noexcept { (void)find_target(); }
  [[nodiscard]] bool lacks_target() const noexcept override { return remote_ == nullptr; }
  [[nodiscard]] std::unique_ptr<TargetSearch> search() const override;
  void take_found(TargetSearch& search) noexcept override;
  [[nodiscard]] ExecResult exec(const ibv_send_wr& wr) noexcept override;
  /// The same for a datagram. A target that has no receive is kReceiverNotReady.
  [[nodiscard]] ExecResult send_datagram(const ibv_send_wr& wr) noexcept;
  /// The same for an XRC request, whose target is the queue pair at this wire's other end and, for all that lies in memory,
  /// the shared receive queue at the end of `queue`. kBusy: another initiator is at work there, and a request
  /// of another host does not wait for it.
  [[nodiscard]] ExecResult exec_xrc(const ibv_send_wr& wr, LocalWire& queue) noexcept;
  /// Whether a READ or WRITE of `total` bytes, which need not be here yet, would be carried out: done() with no bytes, or what
  /// exec_xrc() would say.
  [[nodiscard]] ExecResult check_xrc(const ibv_send_wr& wr, std::uint32_t total, LocalWire& queue) noexcept;
  /// Whether the target is there and accepts requests from here.
  [[nodiscard]] bool is_up() const noexcept;
  /// A target in this process only: carries out the next part of a SEND, WRITE or READ of `total` bytes, of which `done`
  /// are. Its bytes come from or go to `mover` instead of the request's slices. One of a WRITE with immediate data is the
  /// part without bytes that comes last.
  /// Done with success: so many bytes more, none where there are none for now.
  [[nodiscard]] ExecResult exec_part(const ibv_send_wr& wr, std::uint32_t total, std::uint32_t done,
                                     PartMover& mover) noexcept;
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept override;

 private:
  class Search;
  /// Looks for the target, where it is not found yet. 0, or why it was not.
  int find_target() noexcept;
  /// A checked range of the target's memory: mapped at `base`, or (nullptr) reached as its registration says.
  struct TargetRange {
    std::byte* base = nullptr;
    std::uint64_t address = 0;  ///< as requests give it
  };

  /// Runs `work` on the target, which does not go away meanwhile, and tells it of what it must know.
  template <typename Work>
  ExecResult at_target(Work&& work) noexcept;
  /// The same for a request whose slices are looked up first; `work` is given the payload's size.
  template <typename Work>
  ExecResult checked_at_target(const ibv_send_wr& wr, Work&& work) noexcept;
  /// A WRITE of one packet and one slice between the registrations of the WRITE before it. false: it is not, or something
  /// about it has changed, and nothing is done.
  [[nodiscard]] bool write_again(const ibv_send_wr& wr) noexcept;
  [[gnu::noinline]] ExecResult exec_otherwise(const ibv_send_wr& wr) noexcept;
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
  ExecResult exec_send_and_invalidate(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult exec_write(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  void write_mapped(const ibv_send_wr& wr, std::byte* to) noexcept;
  void remember(const ibv_send_wr& wr, std::uint64_t shift) noexcept;
  [[nodiscard]] int write_unmapped(const ibv_send_wr& wr, std::uint64_t to) noexcept;
  ExecResult exec_read(const ibv_send_wr& wr, std::uint32_t bytes) noexcept;
  ExecResult exec_atomic(const ibv_send_wr& wr) noexcept;

  [[nodiscard]] bool local_slices_valid(const ibv_send_wr& wr, std::uint64_t& bytes) const noexcept;
  [[nodiscard]] bool receive_posted() noexcept;
  /// The same, where the target shares its receives: takes one for the message under way.
  [[nodiscard]] bool take_shared_receive() noexcept;
  /// The receive that the message under way goes to.
  [[nodiscard]] RecvEntry& receive() const noexcept;
  /// Where its scatter list ends at the latest, whatever it says of itself.
  [[nodiscard]] const ibv_sge* end_of(const RecvEntry& recv) const noexcept {
    const std::uint32_t stride = srq_.shared == nullptr ? view_.stride : srq_.stride;
    return reinterpret_cast<const ibv_sge*>(reinterpret_cast<const std::byte*>(&recv) + stride);
  }
  /// The registration of that range, if the target's queue pair and the registration allow the access; else nullptr.
  [[nodiscard]] const MrEntry* find_allowed(std::uint32_t key, std::uint32_t pd, std::uint64_t address,
                                            std::uint64_t length, std::uint32_t access) const noexcept;
  [[nodiscard]] bool find(std::uint32_t key, std::uint32_t pd, std::uint64_t address, std::uint64_t length,
                          std::uint32_t access, TargetRange& range) noexcept;
  /// The registration that such a range was found in.
  [[nodiscard]] const MrEntry& registration(std::uint32_t key) const noexcept {
    return target_registrations_[place_of(key)];
  }
  /// kWrite: from `own` to the target's memory; kRead: the other way. 0, or an errno value.
  [[nodiscard]] int copy_unmapped(RequestKind kind, std::byte* own, std::uint64_t address, std::uint32_t key,
                                  std::size_t bytes) noexcept;
  /// Those by system calls. EPERM: not allowed here, the serving thread does it; EACCES: the registration has ended.
  [[nodiscard]] int write_by_address(std::byte* own, std::uint64_t address, std::uint32_t key,
                                     std::size_t bytes) noexcept;
  [[nodiscard]] int write_piece(std::byte* own, std::uint64_t address, std::uint32_t key, std::size_t& bytes) noexcept;
  [[nodiscard]] int read_by_address(std::byte* own, std::uint64_t address, std::uint32_t key,
                                    std::size_t bytes) noexcept;
  [[nodiscard]] int copy_out(const TargetRange& to, std::uint32_t key, std::byte* from, std::size_t bytes) noexcept;
  [[nodiscard]] int copy_in(std::byte* to, const TargetRange& from, std::uint32_t key, std::size_t bytes) noexcept;
  [[nodiscard]] int scatter(const ibv_send_wr& wr, RecvEntry& recv, std::uint32_t bytes) noexcept;
  void publish(const ibv_send_wr& wr, ibv_wc_status status, std::uint32_t bytes, bool eager) noexcept;
  [[nodiscard]] static ExecResult failed_copy(int error) noexcept;

  const LocalEnd own_;
  const std::uint32_t target_qpn_;
  const std::uint64_t link_;  // what the target's link word must be
  std::shared_ptr<Peer> peer_;
  std::unique_ptr<RemoteQp> remote_;
  // What each request needs, once attached: out of remote_ and peer_, one pointer nearer.
  QpShared* target_ = nullptr;
  QpView view_;
  SrqView srq_;
  const std::atomic<std::uint32_t>* recv_floor_ = nullptr;
  std::uint32_t eager_bytes_ = InSlot::kEagerBytes;
  std::span<const MrEntry> own_registrations_;
  std::span<const MrEntry> target_registrations_;
  bool by_membarrier_ = false;
  const void* next_line_ = nullptr;  // that a SEND will write first
  // Of the last WRITE of one slice: its own end, and the target's, with how far from requests' addresses it is mapped here.
  KnownRegistration written_from_;
  KnownRegistration written_to_;
  Copier copier_;
  // The registrations used last, so that the peer's table of mappings is not asked each time.
  struct Cached {
    std::uint64_t stamp = 0;
    std::byte* start = nullptr;
  };
  std::array<Cached, 8> cache_;
};

}  // namespace rdmacomm::softdev
