#include "connector/cm/cm_private_data.h"

#include <string>

#include "base/wire.h"
#include "connector/handshake.h"

namespace rdmacomm {

std::vector<std::byte> CmPrivateData::encode() const {
  WireWriter writer;
  writer.put(kHandshakeMagic);
  writer.put(kHandshakeVersion);
  writer.put(static_cast<std::uint16_t>(purpose));
  writer.put(token);
  writer.put(qpn);
  writer.put(slots);
  writer.put(std::uint16_t{0});
  writer.put(slot_bytes);
  return writer.take();
}

Result<CmPrivateData> CmPrivateData::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  if (reader.get<std::uint32_t>() != kHandshakeMagic) {
    return make_error(Errc::kBadMessage,
                      "rdma_cm private data that is not rdmacomm's: does another program use this port?");
  }
  const auto version = reader.get<std::uint16_t>();
  if (reader.ok() && version != kHandshakeVersion) {
    return make_error(Errc::kVersionMismatch, "handshake version " + std::to_string(version) + "; version " +
                                                  std::to_string(kHandshakeVersion) +
                                                  " was expected; update the older program");
  }
  CmPrivateData data;
  const auto purpose = reader.get<std::uint16_t>();
  data.purpose = static_cast<CmPurpose>(purpose);
  data.token = reader.get<std::uint64_t>();
  data.qpn = reader.get<std::uint32_t>();
  data.slots = reader.get<std::uint16_t>();
  (void)reader.get<std::uint16_t>();  // reserved
  data.slot_bytes = reader.get<std::uint32_t>();
  if (!reader.ok()) return make_error(Errc::kBadMessage, "incomplete rdma_cm private data");
  if (data.purpose != CmPurpose::kMessages && data.purpose != CmPurpose::kQueuePair) {
    return make_error(Errc::kBadMessage,
                      "a connection for purpose " + std::to_string(purpose) + ", which this version does not know");
  }
  return data;
}

}  // namespace rdmacomm
