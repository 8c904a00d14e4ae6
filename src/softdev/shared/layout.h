// layout.h - what a process shows of its queue pairs, queues and registrations to its peers.
//
// Everything here lies in the control segment (a memfd) of the process that owns the object, the target, and is
// mapped by the processes whose queue pairs are connected to it, the initiators: but for the table of registrations, which lies
// in a memfd that they can only read. What they write is checked by who reads it before it is used. Both run the same layout
// version: the handshake in control_protocol.h sees to it.
#pragma once

#include <infiniband/verbs.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev {

inline constexpr std::uint32_t kLayoutVersion = 12;
inline constexpr std::size_t kPage = 4096;

/// Which memfd of the target backs a registered range, so that an initiator can map it.
enum class Arena : std::uint32_t {
  kNone = 0,  ///< memory of the application's own: reached by system calls
  kPages = 1,
  kHugePages = 2,
  kServed = 3,  ///< a device's: reached by the target's serving thread only
};

/// In MrEntry::pd: it is a memory window, which no lkey names, and which is found by requests of others only.
inline constexpr std::uint32_t kOfWindow = 1U << 31;
/// In MrEntry::pd: requests give addresses other than those of its memory (iova). Found only by who translates them, so
/// that nobody else pays for it.
inline constexpr std::uint32_t kWithIova = 1U << 30;

/// Of a key, the place in the table: these bits, so looking it up is one index and one comparison. The others are drawn at random
/// with the place, and the lower 8 are the caller's where it is a memory window of type 2.
inline constexpr std::uint32_t kPlaceBits = 18;
/// Entries of a table of registrations. One is never used: no key is 0.
inline constexpr std::uint32_t kRegistrationEntries = 1U << kPlaceBits;
[[nodiscard]] constexpr std::uint32_t place_of(std::uint32_t key) noexcept {
  return key >> 8 & ((1U << kPlaceBits) - 1);
}

/// One registration. Written by the target while `key` is 0; initiators read it while their hazard flag
/// (QpShared::busy) is up, which keeps the target from reusing the entry.
struct alignas(64) MrEntry {
  std::atomic<std::uint32_t> key;  ///< lkey and rkey, see place_of(); 0: free
  std::uint32_t access;            ///< IBV_ACCESS_*
  std::uint32_t pd;
  Arena arena;
  std::uint64_t address;  ///< as requests give it
  std::uint64_t length;
  std::uint64_t arena_offset;  ///< of `address` in the arena
  std::uint64_t stamp;         ///< never the same twice in one context: tells re-registrations with an equal key apart
  std::uint32_t qpn;           ///< not 0: the only queue pair whose initiator may use it
  std::uint32_t last_drawn;    ///< the owner's own: see MrTable
  std::uint64_t shift;         ///< from an address that a request gives to that of the memory, in the target's process
};
static_assert(sizeof(MrEntry) == 64);

/// The part of a completion queue that initiators touch: whether and how it is armed.
struct alignas(64) CqShared {
  enum Arm : std::uint32_t { kNot = 0, kSolicitedOnly = 1, kAny = 2 };
  std::atomic<std::uint32_t> armed;
  std::atomic<std::uint32_t> pending_events;  ///< fired and not yet taken by get_cq_event
};

/// Where a write by address goes: the places that the initiator's system call is given, in the order in which it fills them. They are
/// here, and not in the initiator's memory, so that the target can take the write back from an initiator that is stopped before its
/// call: the call reads them when it begins.
struct AddressWrite {
  /// Addresses are those of the target's process. First the data; then QpShared::busy, so that the flag goes down with the last byte
  /// also where the initiator is stopped in its call.
  iovec places[2];

  void give(std::uint64_t address, std::size_t length, std::uint64_t flag_address) noexcept {
    places[0].iov_len = length;
    places[1] = {reinterpret_cast<void*>(flag_address), sizeof(std::uint32_t)};
    std::atomic_ref(places[0].iov_base).store(reinterpret_cast<void*>(address), std::memory_order_release);
  }
  /// At address 0 nobody has memory: the call fails, and has written nothing.
  void take_back() noexcept { std::atomic_ref(places[0].iov_base).store(nullptr, std::memory_order_seq_cst); }
  [[nodiscard]] bool is_given() noexcept {
    return std::atomic_ref(places[0].iov_base).load(std::memory_order_seq_cst) != nullptr;
  }
};

/// The receiving side of a queue pair. Behind it lie `entries` inbound slots, then `entries` posted receives.
struct alignas(64) QpShared {
  // Written by the target, seldom.
  std::atomic<std::uint64_t> link;    ///< link_word() while it accepts requests, else 0
  std::atomic<std::uint32_t> access;  ///< IBV_ACCESS_REMOTE_* of the queue pair
  std::atomic<std::uint32_t>
      recv_floor;  ///< no posted receive is shorter, malformed, or in memory given up since: SEND need not look at it
  std::atomic<std::uint32_t> path_mtu;     ///< bytes
  std::atomic<std::uint32_t> rnr_timer;    ///< min_rnr_timer code
  std::atomic<std::uint32_t> max_dest_rd;  ///< READs and atomics it accepts at a time
  std::atomic<std::uint32_t> membarrier;   ///< 1: the target can call membarrier(2), see hazard.h
  std::atomic<std::uint32_t> qkey;         ///< of datagrams: others are not let in
  std::atomic<std::uint32_t> life;         ///< counts from 1 with each RESET: what failed in one does not fail the next
  // Written by the target at each post_recv.
  alignas(64) std::atomic<std::uint32_t> posted;  ///< receives posted since RESET
  // Written by the initiator.
  alignas(64) std::atomic<std::uint32_t> busy;  ///< hazard flag: not 0, an operation on this target is under way;
                                                ///< where they take turns: the queue pair that carries it out;
                                                ///< kByAddress or kInOwnProcess besides
  std::uint32_t taken;                          ///< receives consumed since RESET: the next slot's position
  std::uint32_t posted_seen;  ///< `posted` when an initiator last read it: ends with RESET, as `taken` does
  std::uint32_t claimed;      ///< with a shared receive queue: its entry + 1 that the message under way has taken
  AddressWrite write;
};
static_assert(sizeof(QpShared) == 192);

/// In QpShared::busy: the initiator may be about to write to memory by its address in the target's process, which it does
/// not map. What is there after such memory was given back is another's, so the target waits until this is down, or takes
/// QpShared::write back.
inline constexpr std::uint32_t kByAddress = 1U << 30;
/// The same where the initiator is a thread of the target's own process, which serves other hosts: it is not stopped alone.
inline constexpr std::uint32_t kInOwnProcess = 1U << 29;

/// A shared receive queue. Behind it lie the numbers of the posted entries in the order of posting, a ring, then the
/// entries. An initiator takes the next number while it is the holder, for a handful of instructions.
struct alignas(64) SrqShared {
  // Written by the target.
  std::atomic<std::uint32_t> recv_floor;  ///< as QpShared::recv_floor
  std::atomic<std::uint32_t> limit;       ///< fewer posted than that: an event is due, once; 0: none
  std::atomic<std::uint32_t> posted;      ///< numbers put into the ring
  // Written by the initiators.
  alignas(64) std::atomic<std::uint32_t> holder;  ///< the target's queue pair that one is being taken for; 0: none
  std::atomic<std::uint32_t> taken;               ///< numbers taken out of the ring
};
static_assert(sizeof(SrqShared) == 128);

/// What kind of queue pair it is; both ends are of one. kXrcQueue is where an XRC shared receive queue's messages arrive.
enum class Service : std::uint8_t { kXrc = 1, kReliable, kUnreliable, kDatagram, kXrcQueue };

/// Whether what becomes of a request is known at both ends.
[[nodiscard]] constexpr bool is_reliable(Service service) noexcept {
  return service <= Service::kReliable;
}
/// Whether it has many initiators, which take turns.
[[nodiscard]] constexpr bool takes_turns(Service service) noexcept {
  return service >= Service::kDatagram;
}

/// What QpShared::link holds while target `qpn` accepts requests from initiator `peer_qpn`; 0: anybody, in turns.
/// One load and compare tells the initiator that the target exists, is of its own kind, in RTR or RTS, and connected to
/// it and nobody else.
/// `by_tcp`: the initiator is another host's, whose number may be that of one of this host's, which is not meant.
[[nodiscard]] constexpr std::uint64_t link_word(std::uint32_t qpn, std::uint32_t peer_qpn, Service service,
                                                bool by_tcp = false) noexcept {
  return static_cast<std::uint64_t>(by_tcp) << 63 | static_cast<std::uint64_t>(service) << 60 |
         std::uint64_t{qpn} << 24 | peer_qpn;
}

/// The first word of an inbound slot, published last and by one store: who sees its sequence sees all of the slot.
struct alignas(8) SlotHead {
  std::uint32_t sequence;  ///< position + 1 once the slot is filled
  std::uint8_t status;     ///< ibv_wc_status of the receive
  std::uint8_t opcode;     ///< IBV_WC_RECV or IBV_WC_RECV_RDMA_WITH_IMM, less IBV_WC_RECV
  std::uint8_t flags;      ///< ibv_wc_flags
  std::uint8_t eager;      ///< payload is here; poll_cq copies it out
};
static_assert(sizeof(SlotHead) == 8);

/// One inbound message: a completion, and the payload where it is small. Written by the initiator, read by the
/// target's poll_cq. A message of up to kEagerBytes costs one cache line in all, and as few stores as can be: the
/// target polls the line, and could take it away between any two of them.
struct alignas(64) InSlot {
  static constexpr std::size_t kEagerBytes = 48;
  std::atomic<SlotHead> head;
  std::uint32_t bytes;
  __be32 immediate;
  std::byte payload[kEagerBytes];
};
static_assert(sizeof(InSlot) == 64 && std::atomic<SlotHead>::is_always_lock_free);

/// An inbound slot of a queue pair with a shared receive queue ends with the entry that the message took.
struct SharedReceive {
  static constexpr std::size_t kEagerBytes = InSlot::kEagerBytes - sizeof(std::uint32_t);
  [[nodiscard]] static std::uint32_t& entry(InSlot& slot) noexcept {
    return *reinterpret_cast<std::uint32_t*>(slot.payload + kEagerBytes);
  }
};

/// Where a datagram came from: in its inbound slot, before what SharedReceive has there.
struct DatagramSource {
  std::uint32_t qpn;
  std::uint16_t lid;
  std::uint8_t service_level;
  std::uint8_t has_header;  ///< IBV_WC_GRH
  [[nodiscard]] static DatagramSource& of(InSlot& slot) noexcept {
    return *reinterpret_cast<DatagramSource*>(slot.payload + SharedReceive::kEagerBytes - sizeof(DatagramSource));
  }
};

/// Which way a message came to an XRC shared receive queue: in the same place.
struct XrcRoute {
  static constexpr std::size_t kEagerBytes = SharedReceive::kEagerBytes - 2 * sizeof(std::uint32_t);
  std::uint32_t target_qpn;  ///< IBV_QPT_XRC_RECV
  std::uint32_t source_qpn;  ///< IBV_QPT_XRC_SEND
  [[nodiscard]] static XrcRoute& of(InSlot& slot) noexcept {
    return *reinterpret_cast<XrcRoute*>(slot.payload + kEagerBytes);
  }
};

/// One posted receive, as the initiator sees it. Followed by its scatter list; RecvEntry::stride() apart.
struct RecvEntry {
  std::uint32_t count;  ///< scatter elements
  enum Memory : std::uint32_t {
    kRegistered = 0,
    kUnregistered = 1,  ///< an lkey was wrong when it was posted
    kGivenUp = 2,       ///< it was registered then, and is to be looked up
  };
  std::uint32_t memory;  ///< Memory
  std::uint64_t total;   ///< bytes it can take
  [[nodiscard]] ibv_sge* scatter() noexcept { return reinterpret_cast<ibv_sge*>(this + 1); }
  [[nodiscard]] static constexpr std::size_t stride(std::uint32_t max_sge) noexcept {
    return sizeof(RecvEntry) + max_sge * sizeof(ibv_sge);
  }
};

/// Pointers into one mapping of a QpShared and what lies behind it. The same for target and initiator.
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

/// The same of a SrqShared.
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
