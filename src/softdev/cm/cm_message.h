// cm_message.h - the messages between the connection managers of two processes.
//
// Each connection attempt has a socket of its own: a UNIX socket on one host, TCP between hosts. All messages have one
// size. The sequence is that of the InfiniBand communication manager:
//
//   initiator                listener's process
//   kConnect    ---------->                       REQ
//               <----------  kAccept              REP
//   kReady      ---------->                       RTU
//        then, in either direction:
//   kDisconnect ---------->                       DREQ
//               <----------  kDisconnected        DREP
//
// Instead of kAccept or kReady, a process may send kReject (REJ). For datagrams there are only kLookUp and kFound
// (SIDR REQ and SIDR REP). The end of the socket means that the other identifier no longer exists.
//
// All fields are little-endian, except GIDs.
#pragma once

#include <infiniband/verbs.h>

#include <bit>
#include <cstdint>

#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

static_assert(std::endian::native == std::endian::little,
              "the struct below is sent as it is in memory, and the wire is little-endian");

inline constexpr std::uint32_t kCmMagic = 0x6d636673;  // "sfcm"
inline constexpr std::uint16_t kCmVersion = 1;

/// The port at which other hosts reach the connection managers of a host. It belongs to the block of the queue pair
/// numbers 0 and 1, and in InfiniBand connection management uses queue pair 1.
inline constexpr std::uint16_t kCmPort = tcp_port_of(1);

enum class CmKind : std::uint8_t {
  kConnect = 1,
  kAccept,
  kReady,
  kReject,
  kDisconnect,
  kDisconnected,
  kLookUp,
  kFound,
};

/// Why a connection was rejected: the InfiniBand communication manager's reasons, which programs see as an event's
/// status.
enum class CmReason : std::uint8_t {
  kNoListener = 8,           ///< "invalid service id"
  kConsumerDefined = 28,     ///< the program has rejected it, or does not exist any more
  kOptionNotSupported = 35,  ///< rdma_reject_ece
};
/// The same for datagrams, as the status of kFound.
enum class CmLookUpStatus : std::uint8_t { kFound = 0, kUnsupported = 1, kRejected = 2 };

struct CmMessage {
  std::uint32_t magic = kCmMagic;
  std::uint16_t version = kCmVersion;
  CmKind kind{};
  std::uint8_t status = 0;  ///< kReject: CmReason; kFound: CmLookUpStatus
  // kConnect, kLookUp:
  std::uint16_t port_space = 0;
  std::uint16_t source_port = 0;
  std::uint16_t target_port = 0;
  std::uint16_t family = 0;  ///< of both addresses
  ibv_gid source{};
  ibv_gid target{};
  // kConnect, kAccept, kFound: the sender's queue pair
  std::uint32_t qpn = 0;
  std::uint32_t qkey = 0;  ///< kFound only
  std::uint32_t psn = 0;   ///< the first that it sends
  std::uint32_t ece_vendor = 0;
  std::uint32_t ece_options = 0;
  std::uint8_t responder_resources = 0;
  std::uint8_t initiator_depth = 0;
  std::uint8_t flow_control = 0;
  std::uint8_t retry_count = 0;
  std::uint8_t rnr_retry_count = 0;
  std::uint8_t has_srq = 0;
  std::uint8_t ack_timeout = 0;
  std::uint8_t traffic_class = 0;
  std::uint8_t private_length = 0;
  std::uint8_t reserved[3] = {};
  TcpSecret secret{};  ///< kConnect, kAccept: the queue pair's, see TcpPairing; zero: it has none
  std::uint8_t private_data[256] = {};
};
static_assert(sizeof(CmMessage) == 352);

/// True for the first message of a connection attempt: kConnect or kLookUp.
[[nodiscard]] bool is_request(const CmMessage& message) noexcept;
/// The answer to a request that no listener takes.
[[nodiscard]] CmMessage no_listener(const CmMessage& request) noexcept;
/// True if a message that another process has sent has valid values in all fields.
[[nodiscard]] bool is_valid(const CmMessage& message) noexcept;

}  // namespace rdmacomm::softdev
