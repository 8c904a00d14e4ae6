#include "lat_bw_benchmark/messages.h"

#include <array>

#include "base/printable.h"
#include "connector/handshake.h"

namespace rdmacomm::benchmark {
namespace {

constexpr std::array<const char*, 8> kKindNames = {"", "PLAN", "REPLY", "ORDER", "READY", "FINISH", "REPORT", "DONE"};

/// Text from the peer, cut off and made safe for terminals.
std::string get_printable(WireReader& reader) {
  return printable(reader.get_text(), 1000);
}

Error bad(const std::string& why) {
  return make_error(Errc::kBadMessage, "the peer's benchmark message " + why);
}
Error too_short() {
  return bad("ends too early");
}

}  // namespace

void write_header(WireWriter& writer, MessageKind kind) {
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(static_cast<std::uint16_t>(kind));
}

Result<MessageKind> read_header(WireReader& reader) {
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto kind = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMagic) return bad("is not valid: the peer is not lat_bw_benchmark");
  if (version != kVersion) {
    return make_error(Errc::kVersionMismatch, "the peer's lat_bw_benchmark uses version " + std::to_string(version) +
                                                  " of the protocol, this program version " + std::to_string(kVersion) +
                                                  "; use the same release at both peers");
  }
  if (kind == 0 || kind >= kKindNames.size()) return bad("has the unknown kind " + std::to_string(kind));
  return static_cast<MessageKind>(kind);
}

Error wrong_kind(MessageKind wanted, MessageKind got) {
  return bad(std::string("is ") + kKindNames[static_cast<std::size_t>(got)] + ", but " +
             kKindNames[static_cast<std::size_t>(wanted)] + " was expected");
}

Status at_end(const WireReader& reader) {
  if (reader.remaining() == 0) return {};
  return bad("has " + std::to_string(reader.remaining()) + " bytes too many");
}

void Reply::encode(WireWriter& writer) const {
  writer.put_text(device);
  writer.put(static_cast<std::uint32_t>(cpu));
}

Result<Reply> Reply::decode(WireReader& reader) {
  Reply reply;
  reply.device = get_printable(reader);
  reply.cpu = static_cast<std::int32_t>(reader.get<std::uint32_t>());
  if (!reader.ok()) return too_short();
  return reply;
}

void Order::encode(WireWriter& writer) const {
  writer.put(cell);
  writer.put(iterations);
  writer.put(sequence);
}

Result<Order> Order::decode(WireReader& reader) {
  Order order;
  order.cell = reader.get<std::uint32_t>();
  order.iterations = reader.get<std::uint32_t>();
  order.sequence = reader.get<std::uint32_t>();
  if (!reader.ok()) return too_short();
  if (order.iterations == 0 || order.iterations > Plan::kMaxIterations) {
    return bad("orders " + std::to_string(order.iterations) + " iterations");
  }
  return order;
}

void Report::encode(WireWriter& writer) const {
  writer.put(elapsed_ns);
  writer.put(verified);
  writer.put(corrupt);
  writer.put_text(first_corruption);
}

Result<Report> Report::decode(WireReader& reader) {
  Report report;
  report.elapsed_ns = reader.get<std::uint64_t>();
  report.verified = reader.get<std::uint64_t>();
  report.corrupt = reader.get<std::uint64_t>();
  report.first_corruption = get_printable(reader);
  if (!reader.ok()) return too_short();
  return report;
}

}  // namespace rdmacomm::benchmark
