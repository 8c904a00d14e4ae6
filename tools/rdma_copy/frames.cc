#include "rdma_copy/frames.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "rdma_copy/aligned_bytes.h"

namespace rdmacomm::copying {
namespace {

constexpr std::size_t kPage = 4096;
// Between the header and the data, so that the data is aligned.
constexpr std::size_t kMaxPadding = kDataAlignment - 1;
// If less space is left at the end of a block and the file has more data, the space stays unused.
constexpr std::size_t kMinData = std::size_t{64} << 10;

}  // namespace

StreamOptions stream_options() {
  return {.block_bytes = kBlockBytes, .write_blocks = 5, .read_blocks = 5, .borrowed_blocks = 0};
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
    return make_error(Errc::kInvalidArgument, std::to_string(payload.size()) +
                                                  " bytes are too many for one frame: at most " +
                                                  std::to_string(stream_.block_bytes() - kFrameHead));
  }
  const auto to = room(bytes);
  if (!to) return to.error();
  put_frame_head(*to, kind, payload.size());
  std::ranges::copy(payload, to->begin() + kFrameHead);
  return stream_.commit(bytes);
}

Status FrameWriter::flush() {
  const Rest rest(work_);
  return stream_.flush(Deadline::never());
}

Result<std::span<std::byte>> FrameWriter::lend_data(std::uint64_t wanted) {
  const auto whole = static_cast<std::size_t>(std::min<std::uint64_t>(wanted, kMinData));
  const auto lent = room(kDataHead + kMaxPadding + whole);
  if (!lent) return lent.error();
  lent_ = *lent;
  padding_ = -(reinterpret_cast<std::uintptr_t>(lent_.data()) + kDataHead) % kDataAlignment;
  const auto data = lent_.subspan(kDataHead + padding_);
  if (wanted <= data.size()) return data.first(static_cast<std::size_t>(wanted));
  return data.first(data.size() / kPage * kPage);
}

Status FrameWriter::commit_data(std::uint64_t offset, std::size_t count) {
  if (count == 0) return {};
  put_data_head(lent_, offset, padding_, count);
  return stream_.commit(kDataHead + padding_ + count);
}

Result<std::optional<Frame>> FrameReader::next(Deadline deadline) {
  for (;;) {
    const auto part = take_frame(rest_);
    if (!part) return part.error();
    if (*part) return std::optional(Frame{.kind = (*part)->kind, .payload = (*part)->payload, .block = block_});
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
}

}  // namespace rdmacomm::copying
