// A range of remote memory, and slices of it.
#include <algorithm>
#include <limits>

#include "fuzz/properties.h"
#include "rdmacomm/remote_region.h"

namespace rdmacomm::fuzz {
namespace {
namespace region_target {

bool is_inside(const RemoteRegion& part, const RemoteRegion& whole) {
  return part.rkey == whole.rkey && part.address >= whole.address && part.address - whole.address <= whole.length &&
         part.length <= whole.length - (part.address - whole.address);
}

/// A region, then an offset and a length.
void run(Bytes input) {
  const auto region =
      check_decode<RemoteRegion>(input.first(std::min(input.size(), RemoteRegion::kWireBytes)), Form::kOnlyOne);
  if (!region) return;
  RDMACOMM_FUZZ_CHECK(region->length <= std::numeric_limits<std::uint64_t>::max() - region->address);
  check_harmless(region->to_text());
  WireReader reader(input.subspan(RemoteRegion::kWireBytes));
  const auto offset = reader.get<std::uint64_t>();
  const auto length = reader.get<std::uint64_t>();
  const auto part = region->slice(offset, length);
  const bool fits = offset <= region->length && length <= region->length - offset;
  RDMACOMM_FUZZ_CHECK(check_outcome(part) == fits);
  if (!part) return;
  RDMACOMM_FUZZ_CHECK(is_inside(*part, *region) && part->length == length);
  RDMACOMM_FUZZ_CHECK(is_inside(region->slice_unchecked(offset), *region));
  const auto again = part->slice(0, length);
  RDMACOMM_FUZZ_CHECK(again.has_value() && packed(*again) == packed(*part));
}

std::vector<std::byte> sliced(const RemoteRegion& region, std::uint64_t offset, std::uint64_t length) {
  WireWriter writer;
  writer.put_bytes(region.encode());
  writer.put(offset);
  writer.put(length);
  return writer.take();
}

std::vector<Seed> seeds() {
  constexpr auto kEnd = std::numeric_limits<std::uint64_t>::max();
  const RemoteRegion page{.address = 0x7f0000001000, .length = 4096, .rkey = 0x101};
  return {
      {"inside", sliced(page, 64, 128)},
      {"whole", sliced(page, 0, 4096)},
      {"one_byte_too_many", sliced(page, 4096, 1)},
      {"length_wraps", sliced(page, 1, kEnd)},
      {"up_to_the_end", packed(RemoteRegion{.address = kEnd - 1, .length = 1, .rkey = 1})},
      {"leaves_the_address_space", packed(RemoteRegion{.address = kEnd - 1, .length = 2, .rkey = 1})},
  };
}

}  // namespace region_target
}  // namespace

const Target region{"region", region_target::run, region_target::seeds};

}  // namespace rdmacomm::fuzz
