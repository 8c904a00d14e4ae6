#include "rdmacomm/memory/remote_region.h"

#include <cstdio>
#include <limits>

namespace rdmacomm {

Result<RemoteRegion> RemoteRegion::slice(std::uint64_t offset, std::uint64_t length_) const {
  if (offset > length || length_ > length - offset) {
    return make_error(Errc::kInvalidArgument, std::to_string(length_) + " bytes from offset " + std::to_string(offset) +
                                                  " on are not inside the remote region " + to_text());
  }
  return RemoteRegion{address + offset, length_, rkey};
}

void RemoteRegion::encode(WireWriter& writer) const {
  writer.put(address);
  writer.put(length);
  writer.put(rkey);
}

Result<RemoteRegion> RemoteRegion::decode(WireReader& reader) {
  RemoteRegion region;
  region.address = reader.get<std::uint64_t>();
  region.length = reader.get<std::uint64_t>();
  region.rkey = reader.get<std::uint32_t>();
  if (!reader.ok()) return make_error(Errc::kBadMessage, "a remote region ends too early");
  if (region.length > std::numeric_limits<std::uint64_t>::max() - region.address) {
    return make_error(Errc::kBadMessage, "a remote region leaves the address space: " + region.to_text());
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
