// messages.h - what client and server of the benchmark say to each other over TCP.
//
// Plan and Reply are the private data of the handshake: the client's plan is known before the server makes queue pairs,
// so that these, and its memory, can be fit to it, and a plan that the server cannot follow refuses the connection with
// a reason. The memory of each side is published as the region kWorkspace. User messages follow: for each part of each
// cell Order -> Ready, both measure, Finish -> Report. In between the server sleeps, so that the machine can be
// measured undisturbed. The client ends the run with Done.
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
  std::int32_t cpu = -1;    ///< where it measures; -1: anywhere, or on another machine

  void encode(WireWriter& writer) const;
  [[nodiscard]] static Result<Reply> decode(WireReader& reader);
};

/// "Get ready for this part of this cell."
struct Order {
  static constexpr MessageKind kKind = MessageKind::kOrder;
  std::uint32_t cell = 0;        ///< index in Plan::cells()
  std::uint32_t iterations = 0;  ///< 1..Plan::kMaxIterations
  std::uint32_t sequence = 0;    ///< counts orders: tells their payloads apart

  void encode(WireWriter& writer) const;
  /// kBadMessage: truncated, or out of range; the cell is checked by who knows the plan.
  [[nodiscard]] static Result<Order> decode(WireReader& reader);
};

/// What the server saw of a part of a cell.
struct Report {
  static constexpr MessageKind kKind = MessageKind::kReport;
  std::uint64_t elapsed_ns = 0;       ///< of the server's own direction, where it had one
  std::uint64_t verified = 0;         ///< messages looked at
  std::uint64_t corrupt = 0;          ///< of these, how many were not what was sent
  std::string first_corruption = {};  ///< where and what the first one was

  void encode(WireWriter& writer) const;
  [[nodiscard]] static Result<Report> decode(WireReader& reader);
};

/// Messages that say all they say by their kind.
template <MessageKind kind>
struct Signal {
  static constexpr MessageKind kKind = kind;
  void encode(WireWriter& /*writer*/) const {}
  [[nodiscard]] static Result<Signal> decode(WireReader& /*reader*/) { return Signal{}; }
};
using Ready = Signal<MessageKind::kReady>;
using Finish = Signal<MessageKind::kFinish>;
using Done = Signal<MessageKind::kDone>;

/// The header, whatever follows it.
/// Returns  kBadMessage: not of this protocol, or an unknown kind; kVersionMismatch: the context names both versions
[[nodiscard]] Result<MessageKind> read_header(WireReader& reader);
void write_header(WireWriter& writer, MessageKind kind);
/// kBadMessage: bytes left over, or a message of kind `got` where `wanted` was due.
[[nodiscard]] Error wrong_kind(MessageKind wanted, MessageKind got);
[[nodiscard]] Status at_end(const WireReader& reader);

template <typename T>
[[nodiscard]] std::vector<std::byte> pack(const T& message) {
  WireWriter writer;
  write_header(writer, T::kKind);
  message.encode(writer);
  return writer.take();
}

/// The T that `bytes` are. Returns  kBadMessage, kVersionMismatch: they are none
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
