// tcp_protocol.h - what contexts of different hosts say to each other by TCP.
//
// One connection carries what two connected queue pairs say to each other, both ways: requests, and answers to the other's. Those of
// XRC and datagrams go one way, as their queue pairs do. Its first message is a greeting; who is greeted asks back, by a
// connection of its own to the port of the number that is named, whether the greeting is that queue pair's: whoever has a number
// has its port, since both were drawn (QueuePairs), so nobody else can say yes. Of two queue pairs the lesser connects
// (connects_to_other()); the other one calls it. All fields are little-endian; GIDs, immediate data as they are in verbs.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <bit>
#include <cstdint>

#include "softdev/shared/control_protocol.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

static_assert(std::endian::native == std::endian::little, "the structs below go out as they lie in memory");

inline constexpr std::uint32_t kTcpMagic = 0x70746673;  // "sftp"
inline constexpr std::uint16_t kTcpVersion = 4;

/// The port of the process that has the number `qpn`: one for each block of numbers, 61440 to 65535. None of them is
/// given out by Linux as it comes (ip_local_port_range ends at 60999).
[[nodiscard]] constexpr std::uint16_t tcp_port_of(std::uint32_t qpn) noexcept {
  return static_cast<std::uint16_t>(0xf000U | qpn >> kQpnBlockBits);
}
static_assert(kQpnBlocks <= 0x1000);

/// Random bits that one queue pair shows the other with each connection, see TcpPairing.
using TcpSecret = std::array<std::uint8_t, 16>;

enum class GreetingKind : std::uint8_t {
  kConnection = 1,  ///< what `initiator_qpn` has to say to `target_qpn` follows
  kConfirm,         ///< has your queue pair `initiator_qpn` sent this greeting?
  kCall,            ///< `initiator_qpn` asks `target_qpn`, whose part it is, to connect
};

struct TcpGreeting {
  std::uint32_t magic = kTcpMagic;
  std::uint16_t version = kTcpVersion;
  GreetingKind kind{};
  Service service{};
  std::uint32_t initiator_qpn = 0;
  std::uint32_t target_qpn = 0;
  std::uint32_t path_mtu = 0;  ///< bytes
  std::uint32_t reserved = 0;
  std::uint64_t token = 0;  ///< names the greeting in the question that comes back
  TcpSecret secret{};       ///< the initiator's; zero in a question, in a call, and of datagrams
};
static_assert(sizeof(TcpGreeting) == 48);

enum class Welcome : std::uint8_t {
  kYes = 1,
  kNotYet,   ///< the target does not accept requests of this initiator, and may later
  kRefused,  ///< it never will: not the queue pair that it says it is, or another version
};

struct TcpWelcome {
  std::uint32_t magic = kTcpMagic;
  std::uint16_t version = kTcpVersion;
  Welcome answer{};
  std::uint8_t reserved = 0;
  std::uint32_t path_mtu = 0;  ///< bytes; of the queue pair that welcomes. Zero where it does not
  TcpSecret secret{};          ///< of the queue pair that welcomes; zero where it does not, and of datagrams
};
static_assert(sizeof(TcpWelcome) == 28);

/// What follows on the connection are frames. Each begins with its kind.
enum class FrameKind : std::uint8_t { kRequest = 1, kAnswer };

/// A request. The payload of a SEND or WRITE follows.
struct TcpRequest {
  FrameKind frame = FrameKind::kRequest;
  std::uint8_t opcode = 0;  ///< ibv_wr_opcode
  std::uint8_t solicited = 0;
  std::uint8_t again = 0;       ///< the first after an answer kReady, which goes on where that says
  std::uint32_t done = 0;       ///< as TcpAnswer::done: of the receiver's own requests
  std::uint32_t length = 0;     ///< bytes of the message, of a READ too
  std::uint32_t immediate = 0;  ///< as ibv_send_wr has it; of SEND_WITH_INV: the key
  std::uint32_t key = 0;        ///< rkey; of datagrams: the Q_Key
  std::uint32_t queue = 0;      ///< of XRC: the number of the shared receive queue that it is for
  std::uint64_t address = 0;
  std::uint64_t operand = 0;  ///< atomics: compare_add
  std::uint64_t swap = 0;
};
static_assert(sizeof(TcpRequest) == 48);

/// Of a datagram: follows the TcpRequest, the payload follows.
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

/// An answer. All requests before the one numbered `done` were carried out.
struct TcpAnswer {
  enum Kind : std::uint8_t {
    kDone = 1,  ///< no more than that
    kPayload,   ///< `length` bytes that request `done` - 1 has read follow
    kFailed,    ///< request `done` was refused for `status`
    kNotReady,  ///< request `done` waits for a receive, and what comes after it is thrown away; `rnr_timer` is the target's
    kReady,        ///< the wait is over: request `done` and all after it are to be sent again
    kUnreachable,  ///< the target does not accept requests any more, `done` is the first that it has not carried out
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
