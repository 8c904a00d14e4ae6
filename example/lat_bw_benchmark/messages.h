// messages.h - the messages between client and server of the benchmark, over TCP.
//
// Plan and Reply are the private data of the handshake. The server therefore knows the client's plan before it creates
// queue pairs, and can fit these and its memory to the plan. If it cannot follow the plan, it refuses the connection
// with a reason. Each peer publishes its memory as the region kWorkspace. User messages follow: for each part of each
// cell Order -> Ready, then both measure, then Finish -> Report. In between the server sleeps, so that the machine can
// be measured undisturbed. The client ends the run with Done.
//
//   each message:  magic u32 "RDLB" | version u16 | kind u16 | the fields of its struct, in order, little-endian
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "lat_bw_benchmark/plan.h"
#include "rdmacomm/result.h"

namespace rdmacomm::benchmark {

inline constexpr std::uint32_t kMagic = 0x424c4452;  ///< the bytes "RDLB"
inline constexpr std::uint16_t kVersion = 1;
inline constexpr const char* kWorkspace = "workspace";

/// The server's answer to a plan.
struct Reply {
  static constexpr MessageKind kKind = MessageKind::kReply;
  std::string device = {};  ///< RDMADevice::to_text()
  std::int32_t cpu = -1;    ///< the CPU of its measurement; -1: any, or on another machine

  void encode(WireWriter& writer) const;
  [[nodiscard]] static Result<Reply> decode(WireReader& reader);
};

/// Tells the server to prepare a part of a cell.
struct Order {
  static constexpr MessageKind kKind = MessageKind::kOrder;
  std::uint32_t cell = 0;        ///< index in Plan::cells()
  std::uint32_t iterations = 0;  ///< 1..Plan::kMaxIterations
  std::uint32_t sequence = 0;    ///< counts orders, so that payloads of different orders differ

  void encode(WireWriter& writer) const;
  /// kBadMessage: truncated, or out of range. The caller, which has the plan, must check the cell.
  [[nodiscard]] static Result<Order> decode(WireReader& reader);
};

/// The server's results for a part of a cell.
struct Report {
  static constexpr MessageKind kKind = MessageKind::kReport;
  std::uint64_t elapsed_ns = 0;       ///< of the operations that the server posts, if any
  std::uint64_t verified = 0;         ///< messages that were checked
  std::uint64_t corrupt = 0;          ///< number of these that differed from the sent message
  std::string first_corruption = {};  ///< position and content of the first one

  void encode(WireWriter& writer) const;
  [[nodiscard]] static Result<Report> decode(WireReader& reader);
};

/// Messages without fields.
template <MessageKind kind>
struct Signal {
  static constexpr MessageKind kKind = kind;
  void encode(WireWriter& /*writer*/) const {}
  [[nodiscard]] static Result<Signal> decode(WireReader& /*reader*/) { return Signal{}; }
};
using Ready = Signal<MessageKind::kReady>;
using Finish = Signal<MessageKind::kFinish>;
using Done = Signal<MessageKind::kDone>;

/// Reads the header, whatever message follows.
/// Returns  kBadMessage: not of this protocol, or an unknown kind; kVersionMismatch: the context names both versions
[[nodiscard]] Result<MessageKind> read_header(WireReader& reader);
void write_header(WireWriter& writer, MessageKind kind);
/// kBadMessage: bytes left over, or a message of kind `got` instead of `wanted`.
[[nodiscard]] Error wrong_kind(MessageKind wanted, MessageKind got);
[[nodiscard]] Status at_end(const WireReader& reader);

template <typename T>
[[nodiscard]] std::vector<std::byte> pack(const T& message) {
  WireWriter writer;
  write_header(writer, T::kKind);
  message.encode(writer);
  return writer.take();
}

/// Decodes `bytes` as a T. Returns  kBadMessage, kVersionMismatch: not a T
template <typename T>
[[nodiscard]] Result<T> unpack(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto kind = read_header(reader);
  if (!kind) return kind.error();
  if (*kind != T::kKind) return wrong_kind(T::kKind, *kind);
  auto message = T::decode(reader);
  if (!message) return message;
  if (const Status ended = at_end(reader); !ended.ok()) return ended.error();
  return message;
}

}  // namespace rdmacomm::benchmark
