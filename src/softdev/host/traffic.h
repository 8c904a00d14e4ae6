// traffic.h - counts what the queue pairs of a context send and receive, for the counters in the device files.
//
// No packets exist on one host. The counts are those of a NIC: a message has one packet for each path MTU of its bytes.
// Bytes are payload, without headers. Acknowledgements are not counted.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>

#include "softdev/common/newer_numbers.h"

namespace rdmacomm::softdev {

class TrafficFile;

enum class Count : std::uint8_t {
  kSentPackets,
  kReceivedPackets,
  kSentBytes,
  kReceivedBytes,
  kGroupPacketsSent,      ///< datagrams to multicast groups, which are also in kSentPackets
  kGroupPacketsReceived,  ///< the same for kReceivedPackets
  kSends,                 ///< SEND requests that were executed
  kReceives,              ///< messages that completed a receive
  kNotReadyReceived,      ///< requests that found no receive at their target
  kNotReadySent,          ///< the same at the target
  kRetries,               ///< requests that did not reach their target at first
  kRetriesExceeded,       ///< IBV_WC_RETRY_EXC_ERR
  kNotReadyExceeded,      ///< IBV_WC_RNR_RETRY_EXC_ERR
  kDiscarded,             ///< messages of unreliable queue pairs that their target did not take
  kLinkDowned,            ///< see raise_link_downed(); only for devices that belong to an interface
};
inline constexpr std::size_t kCountKinds = 16;
/// The counts of one device, by Count.
using Counts = std::array<std::uint64_t, kCountKinds>;

/// Number of packets of a message. packet_bytes: the path MTU, a power of two.
[[nodiscard]] constexpr std::uint64_t packets_of(std::uint64_t bytes, std::uint32_t packet_bytes) noexcept {
  return bytes <= packet_bytes ? 1 : (bytes + packet_bytes - 1) / packet_bytes;
}

/// The executed requests of one send queue. Only the thread that completes requests writes to it, without atomic
/// instructions, because they would cost a request more than everything else that is counted. Other processes read it
/// from the file that it lies in. A later queue pair continues its numbers, so that they never fall.
struct alignas(64) TrafficCell {
  /// The kinds of requests. The first four are those of the ibv_wr_opcode with the same number, and share a cache line.
  enum Kind : std::uint8_t {
    kWrite,
    kWriteWithImmediate,
    kSend,
    kSendWithImmediate,
    kSendWithInvalidate,
    kRead,
    kAtomic,
    kAtomicWrite,
    kFlush,
    kNone,
  };
  /// The kind of each ibv_wr_opcode. The last two are kWrFlush and kWrAtomicWrite.
  static constexpr std::array<Kind, 16> kKindOf{kWrite,  kWriteWithImmediate,
                                                kSend,   kSendWithImmediate,
                                                kRead,   kAtomic,
                                                kAtomic, kNone,
                                                kNone,   kSendWithInvalidate,
                                                kNone,   kNone,
                                                kNone,   kNone,
                                                kFlush,  kAtomicWrite};
  static_assert(IBV_WR_RDMA_WRITE == 0 && IBV_WR_SEND_WITH_IMM == 3 && IBV_WR_RDMA_READ == 4 &&
                IBV_WR_ATOMIC_FETCH_AND_ADD == 6 && IBV_WR_SEND_WITH_INV == 9 && kWrFlush == 14 &&
                kWrAtomicWrite == 15);
  /// As `target`: not on this host, or it counts itself what it receives.
  static constexpr std::uint32_t kElsewhere = UINT32_MAX;

  /// Four kinds: one cache line. The two numbers of a kind are not next to each other, because compilers add such a pair
  /// with vector instructions, which takes longer.
  struct Line {
    std::array<std::uint64_t, 4> requests;
    std::array<std::uint64_t, 4> bytes;
  };
  std::array<Line, 3> lines;
  std::uint64_t more_packets;       ///< of WRITEs and SENDs, beyond the first packet of each
  std::uint64_t more_answers;       ///< the same for the data of READs
  std::uint64_t received_requests;  ///< datagrams; written by the thread that polls
  std::uint64_t received_bytes;     ///< the same
  std::uint32_t device;             ///< index of the device
  std::uint32_t target;             ///< the same of the target, or kElsewhere

  [[nodiscard]] std::uint64_t requests(Kind kind) const noexcept { return lines[kind / 4].requests[kind % 4]; }
  [[nodiscard]] std::uint64_t bytes(Kind kind) const noexcept { return lines[kind / 4].bytes[kind % 4]; }

  /// Counts an executed request.
  /// opcode  one that the device has
  [[gnu::always_inline]] void count(ibv_wr_opcode opcode, std::uint32_t bytes, std::uint32_t packet_bytes) noexcept {
    const auto number = static_cast<std::size_t>(opcode);
    if (number > kSendWithImmediate) return count_other(opcode, bytes, packet_bytes);
    ++lines[0].requests[number];
    lines[0].bytes[number] += bytes;
    if (bytes > packet_bytes) [[unlikely]]
      count_more(opcode, bytes, packet_bytes);
  }

 private:
  [[gnu::noinline]] void count_other(ibv_wr_opcode opcode, std::uint32_t bytes, std::uint32_t packet_bytes) noexcept {
    const Kind kind = kKindOf[static_cast<std::size_t>(opcode) % kKindOf.size()];
    ++lines[kind / 4].requests[kind % 4];
    lines[kind / 4].bytes[kind % 4] += bytes;
    count_more(opcode, bytes, packet_bytes);
  }
  [[gnu::noinline]] void count_more(ibv_wr_opcode opcode, std::uint32_t bytes, std::uint32_t packet_bytes) noexcept {
    (opcode == IBV_WR_RDMA_READ ? more_answers : more_packets) += packets_of(bytes, packet_bytes) - 1;
  }
};
static_assert(sizeof(TrafficCell) == 256 && sizeof(TrafficCell::Line) == 64);

/// The counts of one context. It creates the process's file with the first count.
/// Threads: any.
class Traffic {
 public:
  /// device  its index
  explicit Traffic(unsigned device) noexcept : device_(device) {}
  Traffic(const Traffic&) = delete;
  Traffic& operator=(const Traffic&) = delete;

  /// For rare events. Does nothing if there is no memory.
  void add(Count kind, std::uint64_t number = 1) noexcept;
  /// A message from another host, or to one, that a queue pair of this context has received or sent as a target.
  void add_received(std::uint64_t bytes, std::uint32_t packet_bytes) noexcept;
  void add_sent(std::uint64_t bytes, std::uint32_t packet_bytes) noexcept;

  /// A cell for the requests of one send queue to device `target`. Give it back with release().
  /// Returns  nullptr: no memory.
  [[nodiscard]] TrafficCell* take(std::uint32_t target) noexcept;
  void release(TrafficCell* cell) noexcept;
  [[nodiscard]] unsigned device() const noexcept { return device_; }

 private:
  [[nodiscard]] TrafficFile* file() noexcept;

  const unsigned device_;
  std::atomic<TrafficFile*> file_{nullptr};
};

}  // namespace rdmacomm::softdev
