// The protocol of rdma_copy: frames in a block, the messages in them, and the private data.
#include "fuzz/properties.h"
#include "rdma_copy/frame_parts.h"
#include "rdma_copy/messages.h"

namespace rdmacomm::fuzz {
namespace {
namespace copy_target {

using namespace copying;

void check_entry(Bytes payload) {
  const auto entry = check_decode<Entry>(payload, Form::kOnlyOne);
  if (!entry) return;
  RDMACOMM_FUZZ_CHECK(entry->name != "." && entry->name != ".." && entry->name.find('/') == std::string::npos);
  RDMACOMM_FUZZ_CHECK(entry->name.find('\0') == std::string::npos && entry->target.find('\0') == std::string::npos);
  RDMACOMM_FUZZ_CHECK(entry->mode <= 07777 && entry->modified.nanoseconds < 1'000'000'000);
  RDMACOMM_FUZZ_CHECK(entry->size <= std::uint64_t{INT64_MAX} && entry->target.size() <= Job::kMaxPath);
  check_harmless(escaped(entry->name));
  check_harmless(escaped(entry->target));
}

void check_have(Bytes payload) {
  const auto have = check_decode<Have>(payload, Form::kOnlyOne);
  if (!have) return;
  RDMACOMM_FUZZ_CHECK(have->blocks() <= Have::kMaxBlocks && have->block_bytes >= Have::kMinBlock);
  RDMACOMM_FUZZ_CHECK(have->blocks() * have->block_bytes >= have->size);
}

void check_data(Bytes payload) {
  Bytes data = payload;
  const auto offset = take_offset(data);
  if (!check_outcome(offset)) return;
  RDMACOMM_FUZZ_CHECK(!data.empty() && data.size() + kDataHead - kFrameHead <= payload.size());
  RDMACOMM_FUZZ_CHECK(data.data() + data.size() == payload.data() + payload.size());
}

void check_path(Bytes payload) {
  const auto path = take_path(payload);
  if (!check_outcome(path)) return;
  RDMACOMM_FUZZ_CHECK(*path == text_of(payload) && path->size() <= Job::kMaxPath);
  check_harmless(escaped(*path));
}

/// Tries each parser, because the frame's kind alone does not decide which one is called: earlier frames matter, too.
void check_payload(Bytes payload) {
  if (const auto job = check_decode<Job>(payload, Form::kOnlyOne)) RDMACOMM_FUZZ_CHECK(job->paths() > 0);
  check_entry(payload);
  check_have(payload);
  check_data(payload);
  check_path(payload);
  if (const auto hashes = check_decode<Hashes>(payload, Form::kOnlyOne)) {
    RDMACOMM_FUZZ_CHECK(hashes->blocks.size() * Hashes::kBytesOfBlock == payload.size());
  }
  (void)check_decode<Extent>(payload, Form::kOnlyOne);
  (void)check_decode<Same>(payload, Form::kOnlyOne);
  (void)check_decode<FileEnd>(payload, Form::kOnlyOne);
  (void)check_decode<Counts>(payload, Form::kOnlyOne);
  if (const auto failure = check_decode<Failure>(payload)) check_harmless(failure->text);
}

void run(Bytes input) {
  (void)check_outcome(check_identification(input));
  check_payload(input);
  for (Bytes rest = input;;) {
    const std::size_t before = rest.size();
    const auto frame = take_frame(rest);
    if (!check_outcome(frame) || !*frame) return;
    RDMACOMM_FUZZ_CHECK((*frame)->payload.size() + kFrameHead == before - rest.size());
    check_payload((*frame)->payload);
  }
}

std::vector<std::byte> frame(FrameKind kind, Bytes payload = {}) {
  std::vector<std::byte> head(kFrameHead);
  put_frame_head(head, kind, payload.size());
  return std::move(head) + payload;
}

std::vector<std::byte> data(std::uint64_t offset, std::size_t padding, Bytes bytes) {
  std::vector<std::byte> head(kDataHead + padding);
  put_data_head(head, offset, padding, bytes.size());
  return std::move(head) + bytes;
}

std::vector<Seed> seeds() {
  const Job push{.direction = Direction::kPush, .options = {.recursive = true, .delta = true}, .sources = 1};
  Entry file{.id = 1, .mode = 0644, .modified = {.seconds = 1'700'000'000, .nanoseconds = 5}, .size = 10000};
  file.asks = true;
  file.name = "notes.txt";
  Entry link = file;
  link.target = "../notes.txt";
  const Have have{.id = 1, .base = Have::Base::kOld, .size = 10000, .block_bytes = hash_block_bytes(10000)};
  const std::vector<std::byte> hashes =
      Hashes{.blocks = std::vector(have.blocks(), BlockSums{.rolling = 0x5a5a5a5a, .hash = {}})}.encode();
  const Failure failure{.id = 2, .text = "/etc/shadow: permission denied"};
  const FileEnd end{.id = 1, .state = FileEnd::State::kWhole, .checksum = 0x0123456789abcdef};
  const auto job = frame(FrameKind::kJob, push.encode()) + frame(FrameKind::kPath, bytes_of("backup/today"));
  return {
      {"identification", identification()},
      {"job_and_path", job},
      {"file", frame(FrameKind::kFile, file.encode()) + data(0, 3, bytes_of("bytes of the file")) +
                   frame(FrameKind::kFileEnd, end.encode())},
      {"link_hole_same", frame(FrameKind::kLink, link.encode()) +
                             frame(FrameKind::kHole, Extent{.offset = 4096, .length = 8192}.encode()) +
                             frame(FrameKind::kSame, Same{.offset = 0, .length = 4096, .from = 4096}.encode())},
      {"directory_and_leave", frame(FrameKind::kDirectory, link.encode()) + frame(FrameKind::kLeave)},
      {"have_and_hashes", frame(FrameKind::kHave, have.encode()) + frame(FrameKind::kHashes, hashes)},
      {"failure_and_result", frame(FrameKind::kFailure, failure.encode()) +
                                 frame(FrameKind::kResult, Counts{.files = 1, .bytes = 10000}.encode()) +
                                 frame(FrameKind::kEnd)},
      {"padding", job + frame(FrameKind::kPad)},
  };
}

}  // namespace copy_target
}  // namespace

const Target copy{"copy", copy_target::run, copy_target::seeds};

}  // namespace rdmacomm::fuzz
