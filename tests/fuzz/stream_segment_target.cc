// Segments of streams: headers, also as immediate data, and the data after them.
#include "fuzz/properties.h"
#include "rdmacomm/stream.h"
#include "stream/segment.h"

namespace rdmacomm::fuzz {
namespace {
namespace stream_segment_target {

using HeaderBytes = std::array<std::byte, SegmentHeader::kBytes>;

HeaderBytes bytes_of(const SegmentHeader& header) {
  HeaderBytes bytes{};
  header.encode(bytes);
  return bytes;
}

void check_header(const SegmentHeader& header, std::size_t length) {
  RDMACOMM_FUZZ_CHECK(header.length == length && header.credit < kCreditModulus);
}

void check_segment(Bytes input) {
  HeaderBytes head{};
  std::ranges::copy(input.first(std::min(input.size(), head.size())), head.begin());
  const auto header = SegmentHeader::decode(head, input.size());
  if (!check_outcome(header)) return;
  check_header(*header, input.size() - head.size());
  RDMACOMM_FUZZ_CHECK(bytes_of(*header) == head);
}

void check_immediate(Bytes input) {
  WireReader reader(input);
  const auto immediate = reader.get<std::uint32_t>();
  const auto header = header_of(immediate, reader.remaining());
  if (!check_outcome(header)) return;
  check_header(*header, reader.remaining());
  RDMACOMM_FUZZ_CHECK(immediate_of(header->kind, header->credit) == immediate);
}

void run(Bytes input) {
  check_segment(input);
  check_immediate(input);
  for (const Bytes payload : {input, input.subspan(std::min(input.size(), SegmentHeader::kBytes))}) {
    if (const auto hello = check_decode<StreamHello>(payload, Form::kOnlyOne)) {
      RDMACOMM_FUZZ_CHECK(hello->block_bytes >= StreamOptions::kMinBlock &&
                          hello->block_bytes <= StreamOptions::kMaxBlock);
      RDMACOMM_FUZZ_CHECK(hello->read_blocks <= static_cast<std::uint32_t>(StreamOptions::kMaxBlocks));
    }
    if (const auto part = check_decode<Announcement>(payload, Form::kOnlyOne)) {
      RDMACOMM_FUZZ_CHECK(part->region.length > 0 && part->offset <= part->message_bytes);
      RDMACOMM_FUZZ_CHECK(part->region.length <= part->message_bytes - part->offset);
    }
    (void)check_decode<StreamEnd>(payload, Form::kOnlyOne);
    if (const auto aborted = check_decode<StreamAbort>(payload)) {
      check_harmless(aborted->reason);
      RDMACOMM_FUZZ_CHECK(aborted->reason.size() <= kMaxAbortReason);
    }
  }
}

std::vector<std::byte> segment(SegmentKind kind, Bytes payload, std::uint32_t value = 0) {
  const HeaderBytes head =
      bytes_of({.kind = kind, .credit = 7, .length = static_cast<std::uint32_t>(payload.size()), .value = value});
  return std::vector<std::byte>(head.begin(), head.end()) + payload;
}

std::vector<std::byte> immediate(SegmentKind kind, Bytes payload) {
  WireWriter writer;
  writer.put(immediate_of(kind, 0x00abcdef));
  writer.put_bytes(payload);
  return writer.take();
}

std::vector<Seed> seeds() {
  const StreamHello bytes{.block_bytes = 4096, .read_blocks = 8};
  const StreamHello messages{
      .mode = StreamMode::kMessages, .immediate = true, .block_bytes = 65536, .read_blocks = 7, .part_bytes = 1 << 20};
  const Announcement part{.region = {.address = 4096, .length = 50, .rkey = 3}, .message_bytes = 80, .offset = 30};
  const auto data = fuzz::bytes_of("bytes of the stream");
  return {
      {"hello_of_bytes", segment(SegmentKind::kHello, bytes.encode())},
      {"hello_of_messages", segment(SegmentKind::kHello, messages.encode())},
      {"data", segment(SegmentKind::kData, data)},
      {"credit", segment(SegmentKind::kCredit, {})},
      {"end", segment(SegmentKind::kEnd, StreamEnd{19}.encode())},
      {"finished", segment(SegmentKind::kFinished, {})},
      {"abort", segment(SegmentKind::kAbort, StreamAbort{"the disk is full"}.encode())},
      {"announcement", segment(SegmentKind::kAnnounce, part.encode())},
      {"taken", segment(SegmentKind::kTaken, {}, 3)},
      {"immediate_data", immediate(SegmentKind::kData, data)},
      {"immediate_credit", immediate(SegmentKind::kCredit, {})},
  };
}

}  // namespace stream_segment_target
}  // namespace

const Target stream_segment{"stream_segment", stream_segment_target::run, stream_segment_target::seeds};

}  // namespace rdmacomm::fuzz
