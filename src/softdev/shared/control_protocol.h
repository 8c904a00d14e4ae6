// control_protocol.h - the protocol between contexts of one host, over UNIX sockets.
//
// An initiator connects to the socket that serves the target's queue pair number and sends requests. The target's
// serving thread answers. Each message is one packet (SOCK_SEQPACKET); descriptors are passed with it (SCM_RIGHTS). The
// structs are sent as they are in memory: both processes share memory of the same layout anyway, and kHello refuses any
// other version. The end of the connection tells each process that its peer has died.
#pragma once

#include <cstdint>
#include <string>

#include "softdev/shared/access_proof.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

inline constexpr std::uint32_t kControlMagic = 0x30746673;  // "sft0"

/// Queue pair numbers are allocated in blocks. The process that has bound a block's socket name owns the block's
/// numbers. The name is abstract, so it disappears with its owner. Abstract names are visible in one network namespace.
inline constexpr std::uint32_t kQpnBlockBits = 12;
inline constexpr std::uint32_t kQpnBlocks = 1U << (24 - kQpnBlockBits);
[[nodiscard]] inline std::string block_socket_name(std::uint32_t block) {
  return std::string(1, '\0') + "rdmacomm/soft0/" + std::to_string(block);
}

enum class RequestKind : std::uint32_t {
  kHello = 1,  ///< the initiator's AccessProof is in descriptor `argument` -> Answer::value: the target's descriptor
  kProve,      ///< `proof` -> Answer::proof and the control segment's descriptor; required before all requests below
  kQueuePair,  ///< -> QueuePairAnswer
  kChannel,    ///< -> the descriptor that wakes the waiting thread of queue pair `qpn`'s receive queue
  kTable,      ///< -> the descriptor of the table of registrations, for reading
  kArena,      ///< -> the descriptor of arena `argument`
  // Reports, which get no answer.
  kFail,      ///< a request violated the rules of queue pair `qpn`
  kLimit,     ///< queue pair `qpn`'s shared receive queue has fewer receives than its limit
  kContact,   ///< the first request has arrived at queue pair `qpn`
  kReleased,  ///< queue pair `qpn` went down while a request used it; the use has ended
  kDetach,    ///< initiator `peer_qpn` does not use queue pair `qpn`'s memory any more
  // Accesses to memory.
  kWrite,        ///< for memory that cannot be mapped or reached by system calls; `length` bytes follow
  kRead,         ///< -> `length` bytes follow the answer
  kFetchAdd,     ///< -> Answer::value: the value before
  kCompareSwap,  ///< -> Answer::value: the value before
  kAtomicWrite,  ///< stores `operand`
  kInvalidate,   ///< ends the binding of memory window `rkey`; EACCES: no such window
};

/// True for requests that get no answer.
[[nodiscard]] constexpr bool is_report(RequestKind kind) noexcept {
  return kind >= RequestKind::kFail && kind <= RequestKind::kDetach;
}

/// Identifies an XRC domain in all processes.
struct XrcIdentity {
  std::uint64_t device = 0;  ///< device number of the inode; ~0: it has no inode, and `inode` is a unique number
  std::uint64_t inode = 0;
  [[nodiscard]] bool operator==(const XrcIdentity&) const = default;
};

struct Request {
  std::uint32_t magic = kControlMagic;
  std::uint32_t version = kLayoutVersion;
  RequestKind kind{};
  std::uint32_t sequence = 0;
  std::uint32_t qpn = 0;       ///< the target's queue pair
  std::uint32_t peer_qpn = 0;  ///< the initiator's queue pair
  std::uint32_t argument = 0;  ///< kHello: a descriptor; kArena: Arena; kFail: ibv_event_type
  std::uint32_t rkey = 0;
  std::uint64_t address = 0;
  std::uint64_t length = 0;
  std::uint64_t operand = 0;  ///< kFail: QpShared::life
  std::uint64_t swap = 0;
  AccessProof::Number proof{};
};

/// The maximum payload of one kWrite or kRead. Longer ranges are sent in pieces.
inline constexpr std::size_t kMaxControlPayload = 64 * 1024;

struct Answer {
  std::uint32_t sequence = 0;
  std::int32_t error = 0;  ///< 0, or an errno value
  std::uint64_t value = 0;
  // kProve
  AccessProof::Number proof{};
  // kQueuePair
  std::uint64_t qp_offset = 0;
  std::uint64_t busy_address = 0;  ///< of QpShared::busy in the target's process
  std::uint64_t recv_cq_offset = 0;
  std::uint32_t pd = 0;
  std::uint32_t recv_entries = 0;
  std::uint32_t max_recv_sge = 0;
  std::uint32_t device = 0;   ///< index of the device
  std::uint32_t channel = 0;  ///< number of its receive queue's completion channel, see kChannel; 0: none
  // kQueuePair, if it has a shared receive queue (srq_entries != 0)
  std::uint32_t srq_entries = 0;
  std::uint32_t srq_max_sge = 0;
  std::uint32_t srq_pd = 0;
  std::uint64_t srq_offset = 0;
  // kQueuePair, if it is an XRC queue pair
  XrcIdentity xrc_domain;
};

}  // namespace rdmacomm::softdev
