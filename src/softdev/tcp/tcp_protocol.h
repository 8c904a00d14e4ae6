// tcp_protocol.h - the protocol between contexts of different hosts, over TCP.
//
// One connection serves two connected queue pairs in both directions: requests, and answers to the peer's requests. For
// XRC and datagrams, requests go in one direction, as their queue pairs do.
//
// The first message is a greeting. The greeted process asks back if that queue pair has really sent it. For this it
// connects to the port of the queue pair number in the greeting. A process that has a number also has its port, because
// both were taken together (QueuePairs), so no other process can confirm the greeting.
//
// The lesser of the two queue pairs connects (connects_to_other()), and the other one asks it to (kCall). All fields
// are little-endian, except GIDs and immediate data, which are as in verbs.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <cstdint>

#include "softdev/shared/control_protocol.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

static_assert(std::endian::native == std::endian::little,
              "the structs below are sent as they are in memory, and the wire is little-endian");

inline constexpr std::uint32_t kTcpMagic = 0x70746673;  // "sftp"
inline constexpr std::uint16_t kTcpVersion = 6;

/// The port of the process that has the number `qpn`: one for each block of numbers, 61440 to 65535. Linux does not
/// assign these ports by default (ip_local_port_range ends at 60999).
[[nodiscard]] constexpr std::uint16_t tcp_port_of(std::uint32_t qpn) noexcept {
  return static_cast<std::uint16_t>(0xf000U | qpn >> kQpnBlockBits);
}
static_assert(kQpnBlocks <= 0x1000);

/// Limits for the requests to a queue pair.
struct TcpLimits {
  std::uint32_t path_mtu = 0;    ///< bytes
  std::uint32_t read_depth = 0;  ///< maximum number of READs and atomics at a time
};

/// Random bits that a queue pair shows to its peer with each connection, see TcpPairing.
using TcpSecret = std::array<std::uint8_t, 16>;

enum class GreetingKind : std::uint8_t {
  kConnection = 1,  ///< requests of `initiator_qpn` to `target_qpn` follow
  kConfirm,         ///< has your queue pair `initiator_qpn` sent this greeting?
  kCall,            ///< `initiator_qpn` asks `target_qpn`, which has to connect, to do so
};

struct TcpGreeting {
  std::uint32_t magic = kTcpMagic;
  std::uint16_t version = kTcpVersion;
  GreetingKind kind{};
  Service service{};
  std::uint32_t initiator_qpn = 0;
  std::uint32_t target_qpn = 0;
  std::uint32_t path_mtu = 0;    ///< bytes
  std::uint32_t read_depth = 0;  ///< maximum number of READs and atomics at a time that the initiator accepts
  std::uint64_t path = 0;        ///< path_word() of the requests that follow; 0 for datagrams
  std::uint64_t token = 0;       ///< identifies the greeting when the target asks back
  TcpSecret secret{};            ///< the initiator's; zero for kConfirm, kCall and datagrams
};
static_assert(sizeof(TcpGreeting) == 56);

enum class Welcome : std::uint8_t {
  kYes = 1,
  kNotYet,   ///< the target does not accept this initiator's requests now, but may later
  kRefused,  ///< never: not the queue pair that it claims to be, or another version
  kSoon,     ///< try again: the called queue pair connects itself, or the target verifies another greeting first
};

struct TcpWelcome {
  std::uint32_t magic = kTcpMagic;
  std::uint16_t version = kTcpVersion;
  Welcome answer{};
  std::uint8_t read_depth = 0;  ///< as in TcpGreeting, of the queue pair that welcomes; zero unless kYes
  std::uint32_t path_mtu = 0;   ///< bytes, of the queue pair that welcomes; zero unless kYes
  TcpSecret secret{};           ///< of the queue pair that welcomes; zero unless kYes, and for datagrams
};
static_assert(sizeof(TcpWelcome) == 28);

/// After the welcome, the connection carries frames. Each begins with its kind.
enum class FrameKind : std::uint8_t { kRequest = 1, kAnswer };

/// A request. The payload of a SEND or WRITE follows it.
struct TcpRequest {
  FrameKind frame = FrameKind::kRequest;
  std::uint8_t opcode = 0;  ///< ibv_wr_opcode
  std::uint8_t solicited = 0;
  std::uint8_t again = 0;       ///< the first request after kReady, at the number that kReady names
  std::uint32_t done = 0;       ///< as TcpAnswer::done, for the receiver's own requests
  std::uint32_t length = 0;     ///< bytes of the message, also for a READ
  std::uint32_t immediate = 0;  ///< as in ibv_send_wr; for SEND_WITH_INV: the key
  std::uint32_t key = 0;        ///< rkey; for datagrams: the Q_Key
  std::uint32_t queue = 0;      ///< for XRC: number of the shared receive queue
  std::uint64_t address = 0;
  std::uint64_t operand = 0;  ///< atomics: compare_add; FLUSH: see FlushRequest::put()
  std::uint64_t swap = 0;
  std::uint32_t psn = 0;  ///< LinkTerms::psn of the initiator
  std::uint32_t reserved = 0;
};
static_assert(sizeof(TcpRequest) == 56);

/// For datagrams: follows the TcpRequest, before the payload.
struct TcpDatagramAddress {
  ibv_gid source{};
  ibv_gid target{};
  std::uint32_t flow_label = 0;
  std::uint16_t source_lid = 0;
  std::uint8_t service_level = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t hop_limit = 0;
  std::uint8_t is_global = 0;
  std::uint8_t is_routable = 0;  ///< RoCE v2
  std::uint8_t reserved[5] = {};
};
static_assert(sizeof(TcpDatagramAddress) == 48);

/// An answer. All requests before number `done` were executed.
struct TcpAnswer {
  enum Kind : std::uint8_t {
    kDone = 1,     ///< nothing else
    kPayload,      ///< `length` bytes follow, the data of request `done` - 1
    kFailed,       ///< request `done` was refused with `status`
    kNotReady,     ///< request `done` waits for a receive, later ones are discarded; `rnr_timer` is the target's
    kReady,        ///< the wait is over: send request `done` and all later ones again
    kUnreachable,  ///< the target accepts no more requests; `done` is the first that it has not executed
  };
  FrameKind frame = FrameKind::kAnswer;
  Kind kind{};
  std::uint8_t status = 0;  ///< ibv_wc_status
  std::uint8_t rnr_timer = 0;
  std::uint32_t done = 0;  ///< counts from 0 with each connection, and wraps
  std::uint32_t length = 0;
};
static_assert(sizeof(TcpAnswer) == 12);

}  // namespace rdmacomm::softdev
