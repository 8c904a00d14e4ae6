#include "pipes/terms.h"

#include <algorithm>

#include "base/wire.h"
#include "support/sizes.h"

namespace rdmacomm::pipes {
namespace {

constexpr std::uint32_t kMagic = 0x50495052;  // the bytes "RPIP"
constexpr std::uint16_t kVersion = 1;
enum class Kind : std::uint8_t { kTerms = 1, kTotal = 2, kVerdict = 3 };
constexpr std::uint8_t kNone = 0;
constexpr std::uint8_t kXxh3 = 1;

WireWriter begin(Kind kind) {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(static_cast<std::uint8_t>(kind));
  return writer;
}

/// Reads and checks the header.
Status check_head(WireReader& reader, Kind kind, const char* what) {
  const std::string role = kind == Kind::kVerdict ? "receiver" : "sender";
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  const auto said = reader.get<std::uint8_t>();
  if (!reader.ok() || magic != kMagic) {
    return make_error(Errc::kBadMessage, "the " + role + " is not " + what + ": check host and port");
  }
  if (version != kVersion) {
    return make_error(Errc::kVersionMismatch, "the " + role + "'s " + what + " uses version " +
                                                  std::to_string(version) + " of the protocol, this program version " +
                                                  std::to_string(kVersion));
  }
  if (said == static_cast<std::uint8_t>(kind)) return {};
  return make_error(Errc::kBadMessage, "the " + role + "'s " + what + " sent a message of kind " +
                                           std::to_string(said) + ", but kind " +
                                           std::to_string(static_cast<int>(kind)) + " was expected");
}

/// A flag and the number after it, which is 0 without the flag.
std::optional<std::uint64_t> optional_number(std::uint8_t flag, std::uint64_t number, bool& bad) {
  bad = bad || flag > 1 || (flag == 0 && number != 0);
  return flag == 1 ? std::optional(number) : std::nullopt;
}

}  // namespace

Status Terms::validate() const {
  using programs::size_text;
  if (block_bytes < kMinBlock || block_bytes > kMaxBlock) {
    return make_error(Errc::kInvalidArgument, "a block of " + size_text(block_bytes) + " bytes: possible are " +
                                                  size_text(kMinBlock) + " to " + size_text(kMaxBlock));
  }
  if (blocks < kMinBlocks || blocks > kMaxBlocks) {
    return make_error(Errc::kInvalidArgument, std::to_string(blocks) + " blocks: possible are " +
                                                  std::to_string(kMinBlocks) + " to " + std::to_string(kMaxBlocks));
  }
  if (std::uint64_t{block_bytes} * blocks <= kMaxBytes) return {};
  return make_error(Errc::kInvalidArgument, std::to_string(blocks) + " blocks of " + size_text(block_bytes) +
                                                " bytes: at most " + size_text(kMaxBytes) + " bytes in total");
}

std::vector<std::byte> Terms::encode() const {
  WireWriter writer = begin(Kind::kTerms);
  writer.put(checksum ? kXxh3 : kNone);
  writer.put(block_bytes);
  writer.put(blocks);
  writer.put(static_cast<std::uint8_t>(size.has_value()));
  writer.put(size.value_or(0));
  return writer.take();
}

Result<Terms> Terms::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  if (Status head = check_head(reader, Kind::kTerms, "rdma_send"); !head.ok()) return head.error();
  Terms terms;
  const auto checksum = reader.get<std::uint8_t>();
  terms.checksum = checksum == kXxh3;
  terms.block_bytes = reader.get<std::uint32_t>();
  terms.blocks = reader.get<std::uint16_t>();
  const auto known = reader.get<std::uint8_t>();
  bool bad = checksum > kXxh3;
  terms.size = optional_number(known, reader.get<std::uint64_t>(), bad);
  if (bad || !reader.ok() || reader.remaining() != 0) {
    return make_error(Errc::kBadMessage, "the terms that the sender sent cannot be decoded");
  }
  if (const Status valid = terms.validate(); !valid.ok()) {
    return make_error(Errc::kBadMessage, "the sender asks for " + valid.error().context);
  }
  return terms;
}

std::vector<std::byte> Total::encode() const {
  WireWriter writer = begin(Kind::kTotal);
  writer.put(bytes);
  writer.put(static_cast<std::uint8_t>(checksum.has_value()));
  writer.put(checksum.value_or(0));
  return writer.take();
}

Result<Total> Total::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  if (Status head = check_head(reader, Kind::kTotal, "rdma_send"); !head.ok()) return head.error();
  Total total{.bytes = reader.get<std::uint64_t>()};
  const auto known = reader.get<std::uint8_t>();
  bool bad = false;
  total.checksum = optional_number(known, reader.get<std::uint64_t>(), bad);
  if (!bad && reader.ok() && reader.remaining() == 0) return total;
  return make_error(Errc::kBadMessage, "the total that the sender sent cannot be decoded");
}

std::vector<std::byte> Verdict::encode() const {
  WireWriter writer = begin(Kind::kVerdict);
  writer.put(static_cast<std::uint8_t>(failure.has_value()));
  writer.put_text(failure.value_or("").substr(0, kMaxReason));
  return writer.take();
}

Result<Verdict> Verdict::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  if (Status head = check_head(reader, Kind::kVerdict, "rdma_recv"); !head.ok()) return head.error();
  const auto failed = reader.get<std::uint8_t>();
  std::string reason = reader.get_text();
  const bool bad = failed > 1 || (failed == 0 && !reason.empty()) || reason.size() > kMaxReason;
  if (bad || !reader.ok() || reader.remaining() != 0) {
    return make_error(Errc::kBadMessage, "the verdict that the receiver sent cannot be decoded");
  }
  std::ranges::replace_if(
      reason, [](char c) { return c < ' ' || c > '~'; }, '?');
  return failed == 1 ? Verdict{.failure = std::move(reason)} : Verdict{};
}

}  // namespace rdmacomm::pipes
