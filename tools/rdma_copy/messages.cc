#include "rdma_copy/messages.h"

#include <sys/stat.h>

#include <algorithm>
#include <cstdio>

#include "base/printable.h"
#include "base/wire.h"

namespace rdmacomm::copying {
namespace {

constexpr std::uint32_t kMagic = 0x59504352;  // the bytes "RCPY"
constexpr std::uint16_t kVersion = 4;
constexpr std::size_t kMaxName = 255;

Error bad(const char* what) {
  return make_error(Errc::kBadMessage, std::string("the received ") + what + " cannot be decoded");
}

bool is_name(std::string_view name) {
  return name.size() <= kMaxName && name != "." && name != ".." && name.find('/') == std::string_view::npos &&
         name.find('\0') == std::string_view::npos;
}

}  // namespace

std::vector<std::byte> Job::encode() const {
  WireWriter writer;
  writer.put(static_cast<std::uint8_t>(direction));
  for (const bool flag : {options.recursive, options.archive, options.checksum, options.resume, options.delta,
                          options.dry_run, options.sync}) {
    writer.put(static_cast<std::uint8_t>(flag));
  }
  writer.put(options.bytes_per_second);
  writer.put(sources);
  return writer.take();
}

Result<Job> Job::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Job job;
  const auto direction = reader.get<std::uint8_t>();
  job.direction = static_cast<Direction>(direction);
  bool good = direction == 1 || direction == 2;
  for (bool* flag : {&job.options.recursive, &job.options.archive, &job.options.checksum, &job.options.resume,
                     &job.options.delta, &job.options.dry_run, &job.options.sync}) {
    const auto value = reader.get<std::uint8_t>();
    good = good && value <= 1;
    *flag = value == 1;
  }
  job.options.bytes_per_second = reader.get<std::uint64_t>();
  job.sources = reader.get<std::uint32_t>();
  good = good && job.sources > 0;
  if (!good || !reader.ok() || reader.remaining() != 0) return bad("job");
  return job;
}

Result<std::string> take_path(std::span<const std::byte> payload) {
  std::string path(reinterpret_cast<const char*>(payload.data()), payload.size());
  if (path.size() > Job::kMaxPath || path.find('\0') != std::string::npos) return bad("path");
  return path;
}

FileTime FileTime::modified(const struct stat& is) noexcept {
  return {.seconds = is.st_mtim.tv_sec, .nanoseconds = static_cast<std::uint32_t>(is.st_mtim.tv_nsec)};
}

std::array<timespec, 2> FileTime::for_utimens() const noexcept {
  return {timespec{.tv_sec = 0, .tv_nsec = UTIME_OMIT},
          timespec{.tv_sec = seconds, .tv_nsec = static_cast<long>(nanoseconds)}};
}

std::vector<std::byte> Entry::encode() const {
  WireWriter writer;
  writer.put(id);
  writer.put(mode);
  writer.put(static_cast<std::uint64_t>(modified.seconds));
  writer.put(modified.nanoseconds);
  writer.put(size);
  writer.put(static_cast<std::uint8_t>(asks));
  writer.put_text(name);
  writer.put_text(target);
  return writer.take();
}

Result<Entry> Entry::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Entry entry{.id = reader.get<std::uint32_t>(), .mode = reader.get<std::uint32_t>()};
  entry.modified.seconds = static_cast<std::int64_t>(reader.get<std::uint64_t>());
  entry.modified.nanoseconds = reader.get<std::uint32_t>();
  entry.size = reader.get<std::uint64_t>();
  const auto asks = reader.get<std::uint8_t>();
  entry.asks = asks == 1;
  entry.name = reader.get_text();
  entry.target = reader.get_text();
  const bool good = asks <= 1 && entry.mode <= 07777 && entry.modified.nanoseconds < 1'000'000'000 &&
                    entry.size <= std::uint64_t{INT64_MAX} && entry.target.size() <= Job::kMaxPath &&
                    entry.target.find('\0') == std::string::npos;
  if (!good || !reader.ok() || reader.remaining() != 0) return bad("entry");
  if (is_name(entry.name)) return entry;
  return make_error(Errc::kBadMessage, "the received name is invalid: \"" + escaped(entry.name) + '"');
}

std::vector<std::byte> Have::encode() const {
  WireWriter writer;
  writer.put(id);
  writer.put(static_cast<std::uint8_t>(base));
  writer.put(size);
  writer.put(block_bytes);
  return writer.take();
}

Result<Have> Have::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Have have{.id = reader.get<std::uint32_t>()};
  const auto base = reader.get<std::uint8_t>();
  have.base = static_cast<Base>(base);
  have.size = reader.get<std::uint64_t>();
  have.block_bytes = reader.get<std::uint32_t>();
  const bool good = base <= 2 && have.size <= kMaxSize && have.block_bytes == hash_block_bytes(have.size);
  if (!good || !reader.ok() || reader.remaining() != 0) return bad("description of an existing file");
  return have;
}

std::vector<std::byte> Hashes::encode() const {
  WireWriter writer;
  for (const BlockSums& block : blocks) {
    writer.put(block.rolling);
    writer.put_bytes(block.hash);
  }
  return writer.take();
}

Result<Hashes> Hashes::decode(std::span<const std::byte> bytes) {
  if (bytes.size() % kBytesOfBlock != 0) return bad("list of hashes");
  Hashes hashes;
  hashes.blocks.reserve(bytes.size() / kBytesOfBlock);
  WireReader reader(bytes);
  while (reader.remaining() > 0) {
    BlockSums& block = hashes.blocks.emplace_back();
    block.rolling = reader.get<std::uint32_t>();
    std::ranges::copy(reader.take(sizeof(BlockHash)), block.hash.begin());
  }
  return hashes;
}

std::uint32_t hash_block_bytes(std::uint64_t size) noexcept {
  std::uint32_t bytes = Have::kMinBlock;
  while (bytes < Have::kMaxBlock && size / bytes >= Have::kMaxBlocks) bytes *= 2;
  return bytes;
}

std::vector<std::byte> Extent::encode() const {
  WireWriter writer;
  writer.put(offset);
  writer.put(length);
  return writer.take();
}

Result<Extent> Extent::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const Extent extent{.offset = reader.get<std::uint64_t>(), .length = reader.get<std::uint64_t>()};
  if (!reader.ok() || reader.remaining() != 0) return bad("extent");
  return extent;
}

std::vector<std::byte> Same::encode() const {
  WireWriter writer;
  writer.put(offset);
  writer.put(length);
  writer.put(from);
  return writer.take();
}

Result<Same> Same::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const Same same{.offset = reader.get<std::uint64_t>(),
                  .length = reader.get<std::uint64_t>(),
                  .from = reader.get<std::uint64_t>()};
  if (!reader.ok() || reader.remaining() != 0) return bad("description of equal data");
  return same;
}

std::vector<std::byte> FileEnd::encode() const {
  WireWriter writer;
  writer.put(id);
  writer.put(static_cast<std::uint8_t>(state));
  writer.put(static_cast<std::uint8_t>(checksum.has_value()));
  writer.put(checksum.value_or(0));
  return writer.take();
}

Result<FileEnd> FileEnd::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  FileEnd end{.id = reader.get<std::uint32_t>()};
  const auto state = reader.get<std::uint8_t>();
  end.state = static_cast<State>(state);
  const auto known = reader.get<std::uint8_t>();
  const auto checksum = reader.get<std::uint64_t>();
  if (known == 1) end.checksum = checksum;
  if (state > 2 || known > 1 || (known == 0 && checksum != 0) || !reader.ok() || reader.remaining() != 0)
    return bad("end of a file");
  return end;
}

std::vector<std::byte> Failure::encode() const {
  WireWriter writer;
  writer.put(id);
  writer.put_text(std::string_view(text).substr(0, kMaxText));
  return writer.take();
}

Result<Failure> Failure::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Failure failure{.id = reader.get<std::uint32_t>(), .text = reader.get_text()};
  if (failure.text.size() > kMaxText || !reader.ok() || reader.remaining() != 0) return bad("failure");
  failure.text = escaped(failure.text);
  return failure;
}

std::vector<std::byte> Counts::encode() const {
  WireWriter writer;
  for (const std::uint64_t count : {files, directories, links, bytes, bytes_sent, failures}) writer.put(count);
  return writer.take();
}

Result<Counts> Counts::decode(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  Counts counts;
  for (std::uint64_t* count :
       {&counts.files, &counts.directories, &counts.links, &counts.bytes, &counts.bytes_sent, &counts.failures}) {
    *count = reader.get<std::uint64_t>();
  }
  if (!reader.ok() || reader.remaining() != 0) return bad("result");
  return counts;
}

std::vector<std::byte> identification() {
  WireWriter writer;
  writer.put(kMagic);
  writer.put(kVersion);
  return writer.take();
}

Status check_identification(std::span<const std::byte> bytes) {
  WireReader reader(bytes);
  const auto magic = reader.get<std::uint32_t>();
  const auto version = reader.get<std::uint16_t>();
  if (!reader.ok() || magic != kMagic)
    return make_error(Errc::kBadMessage, "the handshake is not from rdma_copy: check host and port");
  if (version == kVersion) return {};
  return make_error(Errc::kVersionMismatch, "the peer's rdma_copy uses version " + std::to_string(version) +
                                                " of the protocol, this program version " + std::to_string(kVersion));
}

std::string escaped(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    const std::size_t length = printable_character(text);
    if (length > 0) {
      out += text.substr(0, length);
    } else if (text.front() == '\n') {
      out += "\\n";
    } else {
      char escaped[5];
      std::snprintf(escaped, sizeof(escaped), "\\x%02x", static_cast<unsigned char>(text.front()));
      out += escaped;
    }
    text.remove_prefix(std::max<std::size_t>(length, 1));
  }
  return out;
}

}  // namespace rdmacomm::copying
