#include "rdmacomm/qp_address.h"

#include <infiniband/verbs.h>

#include <algorithm>
#include <cstdio>

#include "base/wire.h"
#include "verbs/describe.h"
#include "verbs/gid.h"

namespace rdmacomm {

std::array<std::byte, QpAddress::kWireBytes> QpAddress::encode() const {
  WireWriter writer;
  writer.put(qpn);
  writer.put(psn);
  writer.put(lid);
  writer.put(link_layer);
  writer.put(gid_type);
  writer.put_bytes(std::as_bytes(std::span(gid.raw)));
  writer.put(mtu_bytes);
  writer.put(max_read_depth);
  writer.put(pkey);
  writer.put(static_cast<std::uint8_t>(transport));
  writer.put(std::uint8_t{0});
  std::array<std::byte, kWireBytes> bytes{};
  std::ranges::copy(writer.bytes(), bytes.begin());
  return bytes;
}

Result<QpAddress> QpAddress::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  QpAddress address;
  address.qpn = reader.get<std::uint32_t>();
  address.psn = reader.get<std::uint32_t>();
  address.lid = reader.get<std::uint16_t>();
  address.link_layer = reader.get<std::uint8_t>();
  address.gid_type = reader.get<std::uint8_t>();
  const auto gid = reader.take(address.gid.raw.size());
  std::ranges::copy(gid, reinterpret_cast<std::byte*>(address.gid.raw.data()));
  address.mtu_bytes = reader.get<std::uint32_t>();
  address.max_read_depth = reader.get<std::uint32_t>();
  address.pkey = reader.get<std::uint16_t>();
  address.transport = static_cast<Transport>(reader.get<std::uint8_t>());
  const auto reserved = reader.get<std::uint8_t>();
  if (!reader.ok()) return make_error(Errc::kBadMessage, "a queue pair address is incomplete");
  ibv_mtu mtu{};
  constexpr std::uint32_t kMax24 = 0xffffff;
  if (reserved != 0 || reader.remaining() > 0)
    return make_error(Errc::kBadMessage,
                      "a queue pair address has extra bytes at its end or a reserved byte that is not 0");
  if (address.qpn == 0 || address.qpn > kMax24 || address.psn > kMax24 ||
      !verbs::mtu_from_bytes(address.mtu_bytes, mtu)) {
    return make_error(Errc::kBadMessage, "a queue pair address is out of range: " + address.to_text());
  }
  return address;
}

std::string Gid::to_text() const {
  return verbs::to_text(verbs::to_ibv(*this));
}

std::string QpAddress::to_text() const {
  char number[32];
  std::snprintf(number, sizeof(number), "QPN 0x%06x", qpn);
  std::string text = number;
  if (link_layer == IBV_LINK_LAYER_INFINIBAND) text += " LID " + std::to_string(lid);
  text += " GID " + gid.to_text() + " (" + verbs::gid_type_text(gid_type) + ") MTU " + std::to_string(mtu_bytes);
  return text;
}

}  // namespace rdmacomm
