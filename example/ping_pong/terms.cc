#include "ping_pong/terms.h"

#include "base/wire.h"

namespace rdmacomm::ping_pong {
namespace {

constexpr std::uint32_t kMagic = 0x50504452;  // the bytes "RDPP"
constexpr std::uint16_t kVersion = 1;

}  // namespace

Status Terms::validate() const {
  if (size < 1 || size > kMaxSize) {
    return make_error(Errc::kInvalidArgument,
                      "a message size of " + std::to_string(size) + "; possible are 1 to " + std::to_string(kMaxSize));
  }
  if (iterations < 1 || iterations > kMaxIterations) {
    return make_error(Errc::kInvalidArgument,
                      std::to_string(iterations) + " iterations; possible are 1 to " + std::to_string(kMaxIterations));
  }
  return {};
}

std::vector<std::byte> Terms::encode() const {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(size);
  writer.put(iterations);
  return writer.take();
}

Result<Terms> Terms::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMagic) return make_error(Errc::kBadMessage, "the client is not ping_pong_test");
  if (version != kVersion) {
    return make_error(Errc::kVersionMismatch, "the client's ping_pong_test uses version " + std::to_string(version) +
                                                  " of the protocol, this program version " + std::to_string(kVersion));
  }
  Terms terms;
  terms.size = reader.get<std::uint64_t>();
  terms.iterations = reader.get<std::uint32_t>();
  if (!reader.ok() || reader.remaining() != 0)
    return make_error(Errc::kBadMessage, "the client's terms have a wrong length");
  if (const Status valid = terms.validate(); !valid.ok()) return make_error(Errc::kBadMessage, valid.error().context);
  return terms;
}

}  // namespace rdmacomm::ping_pong
