#include "mesh_comm_service/terms.h"

#include <algorithm>

#include "base/printable.h"
#include "mesh_comm_service/cluster.h"
#include "support/sizes.h"
#include "support/table.h"

namespace rdmacomm::mesh {
namespace {

constexpr std::uint32_t kMagic = 0x49534d52;  // the bytes "RMSI"
constexpr std::uint16_t kVersion = 1;

struct Named {
  Operation op;
  const char* name;
};
constexpr Named kOps[] = {{Operation::kSend, "send"},
                          {Operation::kWrite, "write"},
                          {Operation::kWriteImm, "write_imm"},
                          {Operation::kRead, "read"}};

Error out_of_range(const std::string& what, const std::string& possible) {
  return make_error(Errc::kInvalidArgument, what + ": possible are " + possible);
}

}  // namespace

Result<Operation> parse_op(std::string_view name) {
  for (const Named& each : kOps) {
    if (name == each.name) return each.op;
  }
  return make_error(Errc::kInvalidArgument,
                    "--op=" + printable(name, 64) + ": possible are send, write, write_imm and read");
}

const char* op_name(Operation op) noexcept {
  const auto* const found = std::ranges::find(kOps, op, &Named::op);
  return found != std::end(kOps) ? found->name : "none";
}

std::uint32_t usual_depth(std::uint64_t size) noexcept {
  constexpr std::uint64_t kBytes = std::uint64_t{1} << 20;
  return static_cast<std::uint32_t>(std::clamp<std::uint64_t>(kBytes / std::max<std::uint64_t>(size, 1), 2, 64));
}

Status Terms::validate() const {
  if (std::ranges::find(kOps, op, &Named::op) == std::end(kOps)) return out_of_range("the operation", "those of --op");
  if (size < 1 || size > kMaxBytes) return out_of_range("--size=" + programs::size_text(size), "1 to 1G");
  if (depth < 1 || depth > kMaxDepth) {
    return out_of_range("--queue-depth=" + std::to_string(depth), "1 to " + std::to_string(kMaxDepth));
  }
  if ((total == 0) == (duration_us == 0)) {
    return make_error(Errc::kInvalidArgument, "give either --total or --duration, not both");
  }
  return {};
}

Status Terms::check(const RDMADevice& device) const {
  const DeviceLimits& limits = device.limits();
  if (op == Operation::kWriteImm && !limits.immediate_data) {
    return make_error(Errc::kNotSupported, device.to_text() + " has no immediate data; use --op=write or --op=send");
  }
  if (size > limits.max_message_bytes) {
    return make_error(Errc::kBeyondDeviceLimit, "--size=" + programs::size_text(size) + ": the largest message of " +
                                                    device.to_text() + " is " +
                                                    programs::size_text(limits.max_message_bytes));
  }
  if (queue_depth() > limits.max_qp_wr) {
    return make_error(Errc::kBeyondDeviceLimit, "--queue-depth=" + std::to_string(depth) + ": the limit for " +
                                                    device.to_text() + " is " +
                                                    std::to_string(limits.max_qp_wr - static_cast<int>(kNotes)));
  }
  return {};
}

std::string Terms::to_text() const {
  std::string text = std::string("--op=") + op_name(op) + " --size=" + programs::size_text(size);
  text += total != 0 ? " --total=" + programs::size_text(total)
                     : " --duration=" + programs::number_text(static_cast<double>(duration_us) / 1e6);
  return text + " --queue-depth=" + std::to_string(depth) + (verify ? " --verify" : "");
}

void Terms::encode(WireWriter& writer) const {
  writer.put(static_cast<std::uint8_t>(op));
  writer.put(size);
  writer.put(total);
  writer.put(duration_us);
  writer.put(depth);
  writer.put(static_cast<std::uint8_t>(verify));
}

Result<Terms> Terms::decode(WireReader& reader) {
  Terms terms;
  terms.op = static_cast<Operation>(reader.get<std::uint8_t>());
  terms.size = reader.get<std::uint64_t>();
  terms.total = reader.get<std::uint64_t>();
  terms.duration_us = reader.get<std::uint64_t>();
  terms.depth = reader.get<std::uint32_t>();
  terms.verify = reader.get<std::uint8_t>() != 0;
  if (!reader.ok()) return make_error(Errc::kBadMessage, "the terms of a mesh that end too early");
  if (Status valid = terms.validate(); !valid.ok()) return make_error(Errc::kBadMessage, valid.error().context);
  return terms;
}

std::vector<std::byte> Introduction::encode() const {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(rank);
  writer.put(nodes);
  writer.put(incarnation);
  terms.encode(writer);
  writer.put(static_cast<std::uint8_t>(running));
  writer.put(remaining_us);
  return writer.take();
}

Result<Introduction> Introduction::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMagic)
    return make_error(Errc::kBadMessage, "the introduction is not from mesh_comm_service: check host and port");
  if (version != kVersion) {
    return make_error(Errc::kVersionMismatch, "the peer's mesh_comm_service uses version " + std::to_string(version) +
                                                  " of the protocol, this program version " + std::to_string(kVersion) +
                                                  "; use the same release on all nodes");
  }
  Introduction introduction;
  introduction.rank = reader.get<std::uint32_t>();
  introduction.nodes = reader.get<std::uint32_t>();
  introduction.incarnation = reader.get<std::uint64_t>();
  auto terms = Terms::decode(reader);
  if (!terms) return terms.error();
  introduction.terms = *terms;
  introduction.running = reader.get<std::uint8_t>() != 0;
  introduction.remaining_us = reader.get<std::uint64_t>();
  if (!reader.ok() || reader.remaining() > 0)
    return make_error(Errc::kBadMessage, "the introduction of a node has a wrong length");
  if (introduction.nodes > kMaxNodes || introduction.rank >= introduction.nodes) {
    return make_error(Errc::kBadMessage, "a node introduces itself as node " + std::to_string(introduction.rank) +
                                             " of " + std::to_string(introduction.nodes) + " nodes");
  }
  return introduction;
}

Status Introduction::check_fits(const Introduction& other) const {
  const auto refuse = [&](const std::string& mine, const std::string& theirs) {
    return make_error(Errc::kIncompatiblePeer, "node " + std::to_string(rank) + " has " + mine + ", but node " +
                                                   std::to_string(other.rank) + " has " + theirs +
                                                   ": start all nodes with the same options");
  };
  if (nodes != other.nodes) return refuse(std::to_string(nodes) + " nodes", std::to_string(other.nodes));
  if (!(terms == other.terms)) return refuse(terms.to_text(), other.terms.to_text());
  if (rank == other.rank) {
    return make_error(Errc::kIncompatiblePeer,
                      "both peers are node " + std::to_string(rank) + ": give each its own --rank");
  }
  return {};
}

}  // namespace rdmacomm::mesh
