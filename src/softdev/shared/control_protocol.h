// control_protocol.h - what contexts of one host say to each other over UNIX sockets.
//
// An initiator connects to the socket that serves the target's queue pair number and asks; the target's serving
// thread answers. One packet (SOCK_SEQPACKET) a message, descriptors beside it (SCM_RIGHTS). The structs go over
// as they lie in memory: both ends share memory of the same layout anyway, and kHello refuses any other version.
// The connection is also how each end learns of the other's death.
#pragma once

#include <cstdint>
#include <string>

#include "softdev/shared/access_proof.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

inline constexpr std::uint32_t kControlMagic = 0x30746673;  // "sft0"

/// Queue pair numbers are given out in blocks; who has bound a block's socket name owns its numbers. The name is
/// abstract: nothing is left of it when its owner is gone. Abstract names are seen in one network namespace.
inline constexpr std::uint32_t kQpnBlockBits = 12;
inline constexpr std::uint32_t kQpnBlocks = 1U << (24 - kQpnBlockBits);
[[nodiscard]] inline std::string block_socket_name(std::uint32_t block) {
  return std::string(1, '\0') + "rdmacomm/soft0/" + std::to_string(block);
}

enum class RequestKind : std::uint32_t {
  kHello = 1,    ///< who asks has its AccessProof in descriptor `argument` -> Answer::value: the answering end's
  kProve,        ///< `proof` -> Answer::proof, and the control segment's descriptor; nothing else is answered before
  kQueuePair,    ///< -> QueuePairAnswer
  kChannel,      ///< -> the descriptor that wakes the sleeper of queue pair `qpn`'s receive queue
  kTable,        ///< -> the descriptor of the table of registrations, for reading
  kArena,        ///< -> the descriptor of arena `argument`
  kFail,         ///< a request broke the rules of queue pair `qpn`: no answer
  kLimit,        ///< fewer receives than its limit are left in queue pair `qpn`'s shared receive queue: no answer
  kReleased,     ///< queue pair `qpn` went down while a request used it, which it does not any more: no answer
  kDetach,       ///< initiator `peer_qpn` has let go of queue pair `qpn`'s memory: no answer
  kWrite,        ///< memory that can neither be mapped nor reached by system calls: `length` bytes follow
  kRead,         ///< -> `length` bytes follow the answer
  kFetchAdd,     ///< -> Answer::value: what was there
  kCompareSwap,  ///< -> Answer::value: what was there
  kInvalidate,   ///< ends the binding of a memory window, `rkey`; EACCES: there is none
};

/// Whether no answer is awaited.
[[nodiscard]] constexpr bool is_report(RequestKind kind) noexcept {
  return kind == RequestKind::kFail || kind == RequestKind::kLimit || kind == RequestKind::kReleased ||
         kind == RequestKind::kDetach;
}

/// Which XRC domain something belongs to: one thing in all processes.
struct XrcIdentity {
  std::uint64_t device = 0;  ///< of the inode that stands for it; ~0: nothing does, `inode` is a number nobody else has
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

/// The payload of one kWrite or kRead at most; longer ranges go in pieces.
inline constexpr std::size_t kMaxControlPayload = 64 * 1024;

struct Answer {
  std::uint32_t sequence = 0;
  std::int32_t error = 0;  ///< 0, or an errno value
  std::uint64_t value = 0;
  // kProve
  AccessProof::Number proof{};
  // kQueuePair
  std::uint64_t qp_offset = 0;
  std::uint64_t busy_address = 0;  ///< of QpShared::busy, in the target's process
  std::uint64_t recv_cq_offset = 0;
  std::uint32_t pd = 0;
  std::uint32_t recv_entries = 0;
  std::uint32_t max_recv_sge = 0;
  std::uint32_t channel = 0;  ///< number of its receive queue's completion channel, see kChannel; 0: it has none
  // kQueuePair, where it has a shared receive queue (srq_entries != 0)
  std::uint32_t srq_entries = 0;
  std::uint32_t srq_max_sge = 0;
  std::uint32_t srq_pd = 0;
  std::uint64_t srq_offset = 0;
  // kQueuePair, where it is of XRC
  XrcIdentity xrc_domain;
};

}  // namespace rdmacomm::softdev
