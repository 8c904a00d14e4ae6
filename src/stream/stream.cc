#include "rdmacomm/stream.h"

#include <algorithm>

#include "base/copy_bytes.h"
#include "rdmacomm/channel.h"
#include "stream/stream_link.h"

namespace rdmacomm {

// The block -----------------------------------------------------------------------------------------------------------

StreamBlock& StreamBlock::operator=(StreamBlock&& other) noexcept {
  if (this == &other) return *this;
  release();
  link_ = std::exchange(other.link_, nullptr);
  slot_ = other.slot_;
  slice_ = std::exchange(other.slice_, {});
  return *this;
}

void StreamBlock::give_back() noexcept {
  slice_ = {};
  std::exchange(link_, nullptr)->release(slot_);
}

// The stream ----------------------------------------------------------------------------------------------------------

Result<RDMAStream> RDMAStream::open(const EndPoint& endpoint, RDMAChannel& channel, const StreamOptions& options,
                                    Deadline deadline) {
  auto link = StreamLink::open(endpoint, channel, {}, options, deadline);
  if (!link) return link.error();
  return RDMAStream(std::move(*link));
}

RDMAStream::RDMAStream(std::shared_ptr<StreamLink> link) : link_(std::move(link)) {}

RDMAStream::~RDMAStream() {
  current_.release();
  if (link_) link_->abandon();
}

RDMAStream& RDMAStream::operator=(RDMAStream&& other) noexcept {
  if (this == &other) return *this;
  current_.release();
  if (link_) link_->abandon();
  link_ = std::move(other.link_);
  current_ = std::move(other.current_);
  read_of_current_ = std::exchange(other.read_of_current_, 0);
  return *this;
}

StreamLink& RDMAStream::link() const {
  if (!link_) detail::die_of_misuse("an empty stream was used: it was never opened, or moved from", nullptr);
  return *link_;
}

Result<std::span<std::byte>> RDMAStream::lend(Deadline deadline) {
  return link().lend(deadline);
}
Status RDMAStream::commit(std::size_t count) {
  return link().commit(count);
}
Status RDMAStream::write_from(const BufferSlice& slice, std::shared_ptr<const void> keep, Deadline deadline) {
  return link().write_from(slice, std::move(keep), deadline);
}
Status RDMAStream::flush(Deadline deadline) {
  return link().flush(deadline);
}
Status RDMAStream::finish(Deadline deadline) {
  return link().finish(deadline);
}

Status RDMAStream::close(Deadline deadline) {
  if (current_) link().abort("the stream was closed before all data was read");
  return link().close(deadline);
}

Status RDMAStream::write(std::span<const std::byte> bytes, Deadline deadline) {
  while (!bytes.empty()) {
    const auto room = link().lend(deadline);
    if (!room) return room.error();
    const std::size_t count = std::min(room->size(), bytes.size());
    copy_bytes(room->data(), bytes.data(), count);
    if (Status written = link().commit(count); !written) return written;
    bytes = bytes.subspan(count);
  }
  return {};
}

Result<StreamBlock> RDMAStream::next(Deadline deadline) {
  if (current_) {
    const std::size_t rest = current_.size() - read_of_current_;
    StreamBlock block = std::move(current_);
    block.slice_ = block.slice_.slice_unchecked(static_cast<std::uint32_t>(std::exchange(read_of_current_, 0)),
                                                static_cast<std::uint32_t>(rest));
    return block;
  }
  StreamLink::Arrived arrived;
  if (Status come = link().next(deadline, arrived); !come) return come.error();
  if (arrived.is_end) return StreamBlock();
  return StreamBlock(link(), arrived.slot, arrived.slice);
}

Result<std::size_t> RDMAStream::read(std::span<std::byte> out, Deadline deadline) {
  if (out.empty()) return std::size_t{0};
  if (!current_) {
    auto block = next(deadline);
    if (!block) return block.error();
    if (!*block) return std::size_t{0};
    current_ = std::move(*block);
  }
  const auto bytes = current_.bytes().subspan(read_of_current_);
  const std::size_t count = std::min(bytes.size(), out.size());
  copy_bytes(out.data(), bytes.data(), count);
  read_of_current_ += count;
  if (count < bytes.size()) return count;
  read_of_current_ = 0;
  current_.release();
  return count;
}

void RDMAStream::abort(std::string_view reason) {
  link().abort(reason);
}
Status RDMAStream::status() const {
  return link().status();
}
std::size_t RDMAStream::block_bytes() const {
  return link().block_bytes();
}
StreamCounts RDMAStream::counts() const {
  return link().counts();
}
const EndPoint& RDMAStream::endpoint() const {
  return link().endpoint();
}

}  // namespace rdmacomm
