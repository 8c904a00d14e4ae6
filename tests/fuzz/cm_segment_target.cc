// The data of rdma_cm connections: private data, and segments with credits.
#include "connector/cm/cm_private_data.h"
#include "connector/cm/cm_segment.h"
#include "connector/cm/segment_window.h"
#include "fuzz/properties.h"

namespace rdmacomm::fuzz {
namespace {
namespace cm_segment_target {

constexpr std::uint16_t kSlots = 64;
constexpr std::size_t kPrivateDataBytes = 28;

void check_private_data(Bytes input) {
  const auto data = check_decode<CmPrivateData>(input);
  if (!data) return;
  RDMACOMM_FUZZ_CHECK(data->purpose == CmPurpose::kMessages || data->purpose == CmPurpose::kQueuePair);
  RDMACOMM_FUZZ_CHECK(packed(*data).size() == kPrivateDataBytes);
}

void check_segment(Bytes input) {
  const auto header = CmSegment::decode(input);
  if (!header) return;
  RDMACOMM_FUZZ_CHECK(header->length == input.size() - CmSegment::kHeaderBytes);
  const auto wire = header->encode();
  constexpr std::size_t kFields = 6;  // the last two bytes are reserved
  RDMACOMM_FUZZ_CHECK(std::ranges::equal(Bytes(wire).first(kFields), input.first(kFields)));
}

/// Whatever credits the peer sends, the number of outstanding segments never exceeds the number of its receives.
void check_window(Bytes input) {
  const auto peers = static_cast<std::uint16_t>(input.empty() ? 2 : 2 + std::to_integer<int>(input[0]));
  SegmentWindow window(kSlots, peers);
  std::uint32_t under_way = 0;
  std::uint32_t taken = 0;  // local receives that hold a segment
  for (const std::byte byte : input.subspan(std::min<std::size_t>(input.size(), 1))) {
    const auto credits = static_cast<std::uint16_t>(std::to_integer<int>(byte) & 0x3f);
    if ((byte & std::byte{0xc0}) != std::byte{}) {
      if (!window.may_send() && !window.should_give()) continue;
      const std::uint16_t given = window.sent();
      RDMACOMM_FUZZ_CHECK(given <= kSlots && given <= taken);
      taken -= given;
      RDMACOMM_FUZZ_CHECK(++under_way <= peers);
    } else {
      const bool possible = credits <= under_way;
      RDMACOMM_FUZZ_CHECK(window.received(credits) == possible);
      if (!possible) return;
      under_way -= credits;
      if (taken == kSlots) continue;  // the peer may not send: no receive is left
      window.posted_again();
      ++taken;
    }
  }
}

void run(Bytes input) {
  check_private_data(input);
  check_segment(input);
  check_window(input);
}

std::vector<std::byte> segment(std::uint16_t credits, std::uint16_t flags, Bytes payload) {
  const auto head =
      CmSegment{.length = static_cast<std::uint16_t>(payload.size()), .credits = credits, .flags = flags}.encode();
  return std::vector<std::byte>(head.begin(), head.end()) + payload;
}

std::vector<Seed> seeds() {
  const CmPrivateData messages{
      .purpose = CmPurpose::kMessages, .token = 0x0123456789abcdef, .slots = kSlots, .slot_bytes = 1024};
  const CmPrivateData queue_pair{.purpose = CmPurpose::kQueuePair, .token = 0x0123456789abcdef, .qpn = 0x11};
  return {
      {"private_data_messages", messages.encode()},
      {"private_data_queue_pair", queue_pair.encode()},
      {"segment", segment(3, 0, bytes_of("a part of a message"))},
      {"last_segment", segment(0, CmSegment::kLast, {})},
      {"credits", segment(32, 0, {})},
  };
}

}  // namespace cm_segment_target
}  // namespace

const Target cm_segment{"cm_segment", cm_segment_target::run, cm_segment_target::seeds};

}  // namespace rdmacomm::fuzz
