#include "rdma_copy/frames.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "rdma_copy/aligned_bytes.h"
#include "rdmacomm/base/wire.h"

namespace rdmacomm::copying {
namespace {

constexpr std::size_t kDataHead = kFrameHead + sizeof(std::uint64_t) + sizeof(std::uint32_t);
constexpr std::size_t kPage = 4096;
// Between the head and the data, so that these are aligned.
constexpr std::size_t kMostPadding = kDataAlignment - 1;
// Less than that at the end of a block is left empty, where a file has more.
constexpr std::size_t kLeastData = std::size_t{64} << 10;

void put_number(std::span<std::byte> to, std::uint64_t value, std::size_t bytes) {
  for (std::size_t i = 0; i < bytes; ++i) to[i] = static_cast<std::byte>(value >> (8 * i));
}

void put_head(std::span<std::byte> to, FrameKind kind, std::size_t length) {
  put_number(to, static_cast<std::uint8_t>(kind), 4);
  put_number(to.subspan(4), length, 4);
}

}  // namespace

StreamOptions stream_options() {
  return {.block_bytes = kBlockBytes, .write_blocks = 6, .read_blocks = 6, .borrowed_blocks = 0};
}

Result<std::span<std::byte>> FrameWriter::room(std::size_t least) {
  for (;;) {
    const auto lent = [this] {
      const Rest rest(work_);
      return stream_.lend(Deadline::never());
    }();
    if (!lent || lent->size() >= least) return lent;
    std::memset(lent->data(), 0, lent->size());
    if (Status sent = stream_.commit(lent->size()); !sent.ok()) return sent.error();
  }
}

Status FrameWriter::put(FrameKind kind, std::span<const std::byte> payload) {
  const std::size_t bytes = kFrameHead + payload.size();
  if (bytes > stream_.block_bytes()) {
    return make_error(Errc::kInvalidArgument, std::to_string(payload.size()) + " bytes at once are too many: at most " +
                                                  std::to_string(stream_.block_bytes() - kFrameHead));
  }
  const auto to = room(bytes);
  if (!to) return to.error();
  put_head(*to, kind, payload.size());
  std::ranges::copy(payload, to->begin() + kFrameHead);
  return stream_.commit(bytes);
}

Status FrameWriter::flush() {
  const Rest rest(work_);
  return stream_.flush(Deadline::never());
}

Result<std::span<std::byte>> FrameWriter::lend_data(std::uint64_t wanted) {
  const auto whole = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, kLeastData));
  const auto lent = room(kDataHead + kMostPadding + whole);
  if (!lent) return lent.error();
  lent_ = *lent;
  padding_ = -(reinterpret_cast<std::uintptr_t>(lent_.data()) + kDataHead) % kDataAlignment;
  const auto data = lent_.subspan(kDataHead + padding_);
  if (wanted <= data.size()) return data.first(static_cast<std::size_t>(wanted));
  return data.first(data.size() / kPage * kPage);
}

Status FrameWriter::commit_data(std::uint64_t offset, std::size_t count) {
  if (count == 0) return {};
  const std::size_t head = kDataHead + padding_;
  put_head(lent_, FrameKind::kData, head - kFrameHead + count);
  put_number(lent_.subspan(kFrameHead), offset, sizeof(std::uint64_t));
  put_number(lent_.subspan(kFrameHead + sizeof(std::uint64_t)), padding_, sizeof(std::uint32_t));
  std::ranges::fill(lent_.subspan(kDataHead, padding_), std::byte{0});
  return stream_.commit(head + count);
}

Result<std::optional<Frame>> FrameReader::next(Deadline deadline) {
  for (;;) {
    if (!rest_.empty() && rest_.front() == std::byte{0}) rest_ = {};
    if (!rest_.empty()) break;
    block_.reset();
    auto block = [&] {
      const Rest rest(work_);
      return stream_.next(deadline);
    }();
    if (!block) return block.error();
    if (!*block) return std::optional<Frame>();
    block_ = std::make_shared<const StreamBlock>(std::move(*block));
    rest_ = block_->bytes();
  }
  WireReader reader(rest_);
  const auto kind = reader.get<std::uint32_t>();
  const auto length = reader.get<std::uint32_t>();
  if (!reader.ok() || kind > static_cast<std::uint32_t>(FrameKind::kPath) || length > reader.remaining()) {
    return make_error(Errc::kBadMessage, "the other side sends what is no frame: kind " + std::to_string(kind) +
                                             " of " + std::to_string(length) + " bytes, " +
                                             std::to_string(rest_.size()) + " are left of the block");
  }
  const Frame frame{
      .kind = static_cast<FrameKind>(kind), .payload = rest_.subspan(kFrameHead, length), .block = block_};
  rest_ = rest_.subspan(kFrameHead + length);
  return std::optional(frame);
}

Result<std::uint64_t> take_offset(std::span<const std::byte>& payload) {
  WireReader reader(payload);
  const auto offset = reader.get<std::uint64_t>();
  const auto padding = reader.get<std::uint32_t>();
  if (!reader.ok() || padding >= reader.remaining())
    return make_error(Errc::kBadMessage, "the other side's data have no head");
  payload = payload.last(reader.remaining() - padding);
  return offset;
}

}  // namespace rdmacomm::copying
