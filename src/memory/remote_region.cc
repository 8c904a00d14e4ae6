#include "rdmacomm/remote_region.h"

#include <algorithm>
#include <cstdio>
#include <limits>

#include "base/wire.h"

namespace rdmacomm {

Result<RemoteRegion> RemoteRegion::slice(std::uint64_t offset, std::uint64_t length_) const {
  if (offset > length || length_ > length - offset) {
    return make_error(Errc::kInvalidArgument, std::to_string(length_) + " bytes from offset " + std::to_string(offset) +
                                                  " are not inside the remote region " + to_text());
  }
  return RemoteRegion{address + offset, length_, rkey};
}

std::array<std::byte, RemoteRegion::kWireBytes> RemoteRegion::encode() const {
  WireWriter writer;
  writer.put(address);
  writer.put(length);
  writer.put(rkey);
  std::array<std::byte, kWireBytes> bytes{};
  std::ranges::copy(writer.bytes(), bytes.begin());
  return bytes;
}

Result<RemoteRegion> RemoteRegion::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  RemoteRegion region;
  region.address = reader.get<std::uint64_t>();
  region.length = reader.get<std::uint64_t>();
  region.rkey = reader.get<std::uint32_t>();
  if (!reader.ok()) return make_error(Errc::kBadMessage, "a remote region is incomplete");
  if (reader.remaining() > 0) return make_error(Errc::kBadMessage, "a remote region has extra bytes at its end");
  if (region.length > std::numeric_limits<std::uint64_t>::max() - region.address) {
    return make_error(Errc::kBadMessage, "a remote region exceeds the address space: " + region.to_text());
  }
  return region;
}

std::string RemoteRegion::to_text() const {
  char text[80];
  std::snprintf(text, sizeof(text), "[0x%llx, %llu bytes, rkey 0x%x]", static_cast<unsigned long long>(address),
                static_cast<unsigned long long>(length), rkey);
  return text;
}

}  // namespace rdmacomm
