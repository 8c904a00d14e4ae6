// layout.h - the layout of the queue pairs, queues and registrations that a process shares with its peers.
//
// The process that owns these objects is the target. Processes whose queue pairs are connected to it are its
// initiators. The objects are in the target's control segment (a memfd), which the initiators map. Only the table of
// registrations is in another memfd, which initiators cannot write. Each reader checks data from a peer before it uses
// them. Both processes have the same layout version; the handshake in control_protocol.h checks that.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev {

inline constexpr std::uint32_t kLayoutVersion = 17;
inline constexpr std::size_t kPage = 4096;

/// The memfd of the target that contains a registered range, so that an initiator can map it.
enum class Arena : std::uint32_t {
  kNone = 0,  ///< memory of the application that is in no memfd: reached by system calls
  kPages = 1,
  kHugePages = 2,
  kServed = 3,  ///< device memory: only the target's serving thread reaches it
  kOwn = 4,     ///< the application's own memory, see own_memory.h
  kNull = 5,    ///< none: each process has its own, see null_memory.h
};

/// In MrEntry::pd: a memory window. It has no lkey; only remote requests can use it.
inline constexpr std::uint32_t kOfWindow = 1U << 31;
/// In MrEntry::pd: requests use other addresses than those of the memory (iova). Only a lookup that translates
/// addresses finds such an entry, so that the other lookups have no extra cost.
inline constexpr std::uint32_t kWithIova = 1U << 30;

/// Bits of a key that are the place in the table, so that a lookup is one index and one comparison. The other bits are
/// drawn at random when the place is taken. In the key of a type 2 memory window, the caller chooses the lower 8 bits.
inline constexpr std::uint32_t kPlaceBits = 18;
/// Number of entries of a table of registrations. One is never used, so no key is 0.
inline constexpr std::uint32_t kRegistrationEntries = 1U << kPlaceBits;
[[nodiscard]] constexpr std::uint32_t place_of(std::uint32_t key) noexcept {
  return key >> 8 & ((1U << kPlaceBits) - 1);
}

/// One registration. The target writes it while `key` is 0. Initiators read it while their hazard flag (QpShared::busy)
/// is up, which keeps the target from reusing the entry.
struct alignas(64) MrEntry {
  std::atomic<std::uint32_t> key;  ///< lkey and rkey, see place_of(); 0: free
  std::uint32_t access;            ///< IBV_ACCESS_*
  std::uint32_t pd;
  Arena arena;
  std::uint64_t address;  ///< as in requests
  std::uint64_t length;
  std::uint64_t arena_offset;  ///< offset of `address` in the arena
  std::uint64_t stamp;         ///< unique in one context: distinguishes re-registrations with an equal key
  std::uint32_t qpn;           ///< not 0: only this queue pair's initiator may use it
  std::uint32_t last_drawn;    ///< used by the owner only: see MrTable
  std::uint64_t shift;         ///< a request's address + shift = the address in the target's process
};
static_assert(sizeof(MrEntry) == 64);

/// How the messages for a completion queue get their stamps, see arrival_stamp.h.
enum class Stamping : std::uint32_t { kNone = 0, kByClock = 1, kByCounter = 2 };

/// The part of a completion queue that initiators access: its arming state, and the order of its messages.
struct alignas(64) CqShared {
  enum Arm : std::uint32_t { kNot = 0, kSolicitedOnly = 1, kAny = 2 };
  std::atomic<std::uint32_t> armed;
  std::atomic<std::uint32_t> pending_events;  ///< fired and not yet taken by get_cq_event
  std::atomic<std::uint64_t> stamps;          ///< number of stamps drawn, see draw_stamp()
};

/// The destination of a write by address: the list of ranges for the initiator's system call, in the order in which the
/// call writes them. The list is in the target's segment, not in the initiator's memory. So the target can withdraw the
/// write of an initiator that is stopped before its call: the call reads the list when it begins.
struct AddressWrite {
  /// Addresses in the target's process. The first range is the data, the second is QpShared::busy. So the flag goes
  /// down with the last byte even if the initiator is stopped during its call.
  iovec places[2];

  void give(std::uint64_t address, std::size_t length, std::uint64_t flag_address) noexcept {
    places[0].iov_len = length;
    places[1] = {reinterpret_cast<void*>(flag_address), sizeof(std::uint32_t)};
    std::atomic_ref(places[0].iov_base).store(reinterpret_cast<void*>(address), std::memory_order_release);
  }
  /// No process has memory at address 0, so the call fails without writing anything.
  void take_back() noexcept { std::atomic_ref(places[0].iov_base).store(nullptr, std::memory_order_seq_cst); }
  [[nodiscard]] bool is_given() noexcept {
    return std::atomic_ref(places[0].iov_base).load(std::memory_order_seq_cst) != nullptr;
  }
};

/// Properties of the packets in one direction of a connection, see link_terms.h. Both ends have the same
/// terms for a direction, or no request gets through, as between two NICs.
struct LinkTerms {
  ibv_gid source{};              ///< of the queue pair that sends. Zero: InfiniBand without a global header
  ibv_gid target{};              ///< of the queue pair that receives
  std::uint32_t gid_type = 0;    ///< ibv_gid_type: RoCE v1 and v2 are different protocols
  std::uint16_t source_lid = 0;  ///< InfiniBand only
  std::uint16_t target_lid = 0;
  std::uint32_t psn = 0;       ///< packet sequence number of the first packet; 0 for unreliable queue pairs
  std::uint32_t peer_qpn = 0;  ///< the queue pair that sends
};
static_assert(sizeof(LinkTerms) == 48);

/// The receiving end of a queue pair. After it in memory: `entries` inbound slots, then `entries` posted receives.
struct alignas(64) QpShared {
  // The target writes these, rarely.
  std::atomic<std::uint64_t> link;    ///< link_word() while it accepts requests, else 0
  std::atomic<std::uint32_t> access;  ///< IBV_ACCESS_REMOTE_* of the queue pair
  std::atomic<std::uint32_t>
      recv_floor;  ///< SEND skips its checks up to this size: no receive is shorter, malformed or given up
  std::atomic<std::uint32_t> path_mtu;     ///< bytes
  std::atomic<std::uint32_t> rnr_timer;    ///< min_rnr_timer code
  std::atomic<std::uint32_t> max_dest_rd;  ///< maximum number of READs and atomics at a time
  std::atomic<std::uint32_t> membarrier;   ///< 1: the target can call membarrier(2), see hazard.h
  std::atomic<std::uint32_t> qkey;         ///< of datagrams: others are dropped
  std::atomic<std::uint32_t> life;         ///< 1 plus the number of RESETs: an old failure does not affect a new life
  std::atomic<Stamping> stamping;          ///< not kNone: its completion queue is also that of other queue pairs
  // The initiator changes these two with its first request.
  std::atomic<std::uint32_t> awaits_first;    ///< 1: in RTR, and no request has arrived
  std::atomic<std::uint32_t> initiator_life;  ///< QpShared::life of the initiator; 0: no request since RESET
  /// LinkTerms of the requests that it accepts, see publish_terms(). For an initiator that is refused, to find out why.
  alignas(64) std::atomic<std::uint64_t> terms[sizeof(LinkTerms) / 8];
  // The target writes this at each post_recv.
  alignas(64) std::atomic<std::uint32_t> posted;  ///< receives posted since RESET
  // The initiator writes these.
  /// Hazard flag. Not 0: an operation on this target is in progress. If the target has several initiators, the flag is
  /// the queue pair number of the one at work. kByAddress or kInOwnProcess may be set in addition.
  alignas(64) std::atomic<std::uint32_t> busy;
  std::uint32_t taken;        ///< receives consumed since RESET: the next slot's position
  std::uint32_t posted_seen;  ///< `posted` when an initiator last read it; reset with `taken`
  std::uint32_t claimed;      ///< shared receive queue: entry + 1 that the current message has taken
  AddressWrite write;
};
static_assert(sizeof(QpShared) == 256);

/// In QpShared::busy: the initiator may be about to write to memory of the target that it does not map, by its address.
/// After the application frees such memory, the address may belong to other data. So the target waits until this is
/// down, or takes QpShared::write back.
inline constexpr std::uint32_t kByAddress = 1U << 30;
/// The same, but the initiator is a thread of the target process, which serves other hosts. It cannot be stopped
/// while the target runs.
inline constexpr std::uint32_t kInOwnProcess = 1U << 29;

/// A shared receive queue. After it in memory: a ring with the numbers of the posted entries in the order of posting,
/// then the entries. An initiator takes the next number while it is the holder, which lasts a few instructions.
struct alignas(64) SrqShared {
  // The target writes these.
  std::atomic<std::uint32_t> recv_floor;  ///< as QpShared::recv_floor
  std::atomic<std::uint32_t> limit;       ///< an event is due, once, if fewer are posted; 0: none
  std::atomic<std::uint32_t> posted;      ///< numbers put into the ring
  // The initiators write these.
  alignas(64) std::atomic<std::uint32_t> holder;  ///< target queue pair for which a number is being taken; 0: none
  std::atomic<std::uint32_t> taken;               ///< numbers taken out of the ring
};
static_assert(sizeof(SrqShared) == 128);

/// The kind of a queue pair; both ends have the same. kXrcQueue receives the messages for an XRC shared receive queue.
enum class Service : std::uint8_t { kXrc = 1, kReliable, kUnreliable, kDatagram, kXrcQueue };

/// True if both ends learn the result of a request.
[[nodiscard]] constexpr bool is_reliable(Service service) noexcept {
  return service <= Service::kReliable;
}
/// True if a queue pair has many initiators, one at a time.
[[nodiscard]] constexpr bool takes_turns(Service service) noexcept {
  return service >= Service::kDatagram;
}

/// Parts of an inbound slot that not every message fills.
enum SlotContents : std::uint8_t {
  kEager = 1,    ///< the payload is in the slot; poll_cq copies it out
  kStamped = 2,  ///< the stamp is valid
};

/// The first word of an inbound slot. It is published last and by one store: a reader that sees its sequence sees the
/// whole slot.
struct alignas(8) SlotHead {
  std::uint32_t sequence;  ///< position + 1 once the slot is filled
  std::uint8_t status;     ///< ibv_wc_status of the receive
  std::uint8_t opcode;     ///< IBV_WC_RECV or IBV_WC_RECV_RDMA_WITH_IMM, less IBV_WC_RECV
  std::uint8_t flags;      ///< ibv_wc_flags
  std::uint8_t contents;   ///< SlotContents
};
static_assert(sizeof(SlotHead) == 8);

/// One inbound message: a completion, and the payload if it is small. The initiator writes it, the target's poll_cq
/// reads it. A message of up to kEagerBytes needs only one cache line and as few stores as possible. The target polls
/// the line, so it may take the line away between any two stores.
struct alignas(64) InSlot {
  static constexpr std::size_t kEagerBytes = 48;
  static constexpr std::size_t kStampedEagerBytes = kEagerBytes - sizeof(std::uint64_t);
  std::atomic<SlotHead> head;
  std::uint32_t bytes;
  __be32 immediate;
  alignas(8) std::byte payload[kEagerBytes];
  /// See draw_stamp(). It takes the end of the payload.
  [[nodiscard]] std::uint64_t& stamp() noexcept {
    return *reinterpret_cast<std::uint64_t*>(payload + kStampedEagerBytes);
  }
};
static_assert(sizeof(InSlot) == 64 && std::atomic<SlotHead>::is_always_lock_free);

/// In a queue pair with a shared receive queue, the number of the entry that the message took. It lies in the slot
/// before the stamp.
struct SharedReceive {
  static constexpr std::size_t kEagerBytes = InSlot::kStampedEagerBytes - sizeof(std::uint32_t);
  [[nodiscard]] static std::uint32_t& entry(InSlot& slot) noexcept {
    return *reinterpret_cast<std::uint32_t*>(slot.payload + kEagerBytes);
  }
};

/// The source of a datagram, in its inbound slot directly before the SharedReceive entry.
struct DatagramSource {
  std::uint32_t qpn;
  std::uint16_t lid;
  std::uint8_t service_level;
  std::uint8_t has_header;  ///< IBV_WC_GRH
  [[nodiscard]] static DatagramSource& of(InSlot& slot) noexcept {
    return *reinterpret_cast<DatagramSource*>(slot.payload + SharedReceive::kEagerBytes - sizeof(DatagramSource));
  }
};

/// The queue pairs of a message to an XRC shared receive queue, at the same place in its slot.
struct XrcRoute {
  static constexpr std::size_t kEagerBytes = SharedReceive::kEagerBytes - 2 * sizeof(std::uint32_t);
  std::uint32_t target_qpn;  ///< IBV_QPT_XRC_RECV
  std::uint32_t source_qpn;  ///< IBV_QPT_XRC_SEND
  [[nodiscard]] static XrcRoute& of(InSlot& slot) noexcept {
    return *reinterpret_cast<XrcRoute*>(slot.payload + kEagerBytes);
  }
};

/// One posted receive, as the initiator sees it. Its scatter list follows. Entries are RecvEntry::stride() bytes apart.
struct RecvEntry {
  std::uint32_t count;  ///< scatter elements
  enum Memory : std::uint32_t {
    kRegistered = 0,
    kUnchecked = 1,  ///< not all of it is registered: the initiator must look up the part that it uses
  };
  std::uint32_t memory;  ///< Memory
  std::uint64_t total;   ///< bytes of room
  [[nodiscard]] ibv_sge* scatter() noexcept { return reinterpret_cast<ibv_sge*>(this + 1); }
  [[nodiscard]] static constexpr std::size_t stride(std::uint32_t max_sge) noexcept {
    return sizeof(RecvEntry) + max_sge * sizeof(ibv_sge);
  }
};

/// Pointers into one mapping of a QpShared and the slots and receives after it. The same for target and initiator.
struct QpView {
  QpShared* shared = nullptr;
  InSlot* slots = nullptr;
  std::byte* recvs = nullptr;
  std::uint32_t mask = 0;  ///< entries - 1; entries is a power of two
  std::uint32_t stride = 0;

  QpView() = default;
  QpView(std::byte* base, std::uint32_t entries, std::uint32_t max_sge) noexcept
      : shared(reinterpret_cast<QpShared*>(base)),
        slots(reinterpret_cast<InSlot*>(base + sizeof(QpShared))),
        recvs(base + sizeof(QpShared) + entries * sizeof(InSlot)),
        mask(entries - 1),
        stride(static_cast<std::uint32_t>(RecvEntry::stride(max_sge))) {}
  [[nodiscard]] static std::size_t bytes(std::uint32_t entries, std::uint32_t max_sge) noexcept {
    return sizeof(QpShared) + entries * (sizeof(InSlot) + RecvEntry::stride(max_sge));
  }
  [[nodiscard]] InSlot& slot(std::uint32_t position) const noexcept { return slots[position & mask]; }
  [[nodiscard]] RecvEntry& recv(std::uint32_t position) const noexcept {
    return *reinterpret_cast<RecvEntry*>(recvs + std::size_t{position & mask} * stride);
  }
};

/// The same for a SrqShared.
struct SrqView {
  SrqShared* shared = nullptr;
  std::atomic<std::uint32_t>* order = nullptr;
  std::byte* recvs = nullptr;
  std::uint32_t mask = 0;
  std::uint32_t stride = 0;

  SrqView() = default;
  SrqView(std::byte* base, std::uint32_t entries, std::uint32_t max_sge) noexcept
      : shared(reinterpret_cast<SrqShared*>(base)),
        order(reinterpret_cast<std::atomic<std::uint32_t>*>(base + sizeof(SrqShared))),
        recvs(base + sizeof(SrqShared) + (std::size_t{entries} * sizeof(*order) + 7) / 8 * 8),
        mask(entries - 1),
        stride(static_cast<std::uint32_t>(RecvEntry::stride(max_sge))) {}
  [[nodiscard]] static std::size_t bytes(std::uint32_t entries, std::uint32_t max_sge) noexcept {
    return sizeof(SrqShared) + (std::size_t{entries} * sizeof(*order) + 7) / 8 * 8 +
           std::size_t{entries} * RecvEntry::stride(max_sge);
  }
  [[nodiscard]] RecvEntry& recv(std::uint32_t entry) const noexcept {
    return *reinterpret_cast<RecvEntry*>(recvs + std::size_t{entry} * stride);
  }
};

}  // namespace rdmacomm::softdev
