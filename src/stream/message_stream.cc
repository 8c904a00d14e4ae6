#include "rdmacomm/stream/message_stream.h"

#include <algorithm>

#include "base/copy_bytes.h"
#include "stream/stream_link.h"

namespace rdmacomm {

ChannelConfig MessageStream::channel(const StreamOptions& options, std::string name) {
  ChannelConfig config = options.channel(std::move(name));
  config.adapter.send_depth = *config.adapter.send_depth + StreamLink::more_sends(true);
  config.adapter.recv_depth = *config.adapter.recv_depth + StreamLink::more_receives(options, true);
  return config;
}

Result<std::unique_ptr<MessageStream>> MessageStream::open(std::shared_ptr<EndPoint> endpoint, RDMAChannel& channel,
                                                           std::shared_ptr<BufferPool> pool,
                                                           const StreamOptions& options, Deadline deadline) {
  if (!pool) return make_error(Errc::kInvalidArgument, "a stream of messages needs a pool");
  auto link = StreamLink::open(std::move(endpoint), channel, pool, options, deadline);
  if (!link) return link.error();
  return std::unique_ptr<MessageStream>(new MessageStream(std::move(*link), std::move(pool)));
}

MessageStream::MessageStream(std::shared_ptr<StreamLink> link, std::shared_ptr<BufferPool> pool)
    : link_(std::move(link)), pool_(std::move(pool)) {}

MessageStream::~MessageStream() {
  link_->leave();
}

Result<std::span<std::byte>> MessageStream::lend(Deadline deadline) {
  return link_->lend(deadline);
}
Status MessageStream::commit(std::size_t count) {
  return link_->commit_message(count);
}

Status MessageStream::send(std::span<const std::byte> message, Deadline deadline) {
  if (message.size() > block_bytes()) return send_large(message, deadline);
  const auto room = link_->lend(deadline);
  if (!room) return room.error();
  copy_bytes(room->data(), message.data(), message.size());
  return link_->commit_message(message.size());
}

Status MessageStream::send_large(std::span<const std::byte> message, Deadline deadline) {
  const std::size_t most = link_->part_bytes();
  for (std::size_t offset = 0; offset < message.size();) {
    const auto part = message.subspan(offset, std::min(most, message.size() - offset));
    auto lease = link_->take(part.size(), deadline);
    Status sent = lease.status();
    if (sent) {
      copy_bytes(lease->data(), part.data(), part.size());
      sent = link_->announce(*std::move(lease), message.size(), offset, deadline);
    }
    if (!sent) {
      // Half a message cannot be taken back.
      if (offset > 0) link_->abort("a message could not be sent as a whole: " + sent.message());
      return sent;
    }
    offset += part.size();
  }
  return {};
}

Status MessageStream::send(BufferLease lease, Deadline deadline) {
  if (!lease) return send(std::span<const std::byte>(), deadline);
  const std::uint32_t bytes = lease.size();
  if (bytes <= link_->part_bytes()) return link_->announce(std::move(lease), bytes, 0, deadline);
  return send(lease.bytes(), deadline);
}

Status MessageStream::flush(Deadline deadline) {
  return link_->flush(deadline);
}
Status MessageStream::finish(Deadline deadline) {
  return link_->finish(deadline);
}

Result<MessagePart> MessageStream::receive(Deadline deadline) {
  StreamLink::Arrived arrived;
  if (Status come = link_->next(deadline, arrived); !come) return come.error();
  if (arrived.is_end) return MessagePart();
  if (arrived.part)
    return MessagePart(std::move(arrived.part->lease), arrived.part->message_bytes, arrived.part->offset);
  return MessagePart(StreamBlock(*link_, arrived.slot, arrived.slice));
}

void MessageStream::abort(std::string_view reason) noexcept {
  link_->abort(reason);
}
Status MessageStream::status() const {
  return link_->status();
}
std::size_t MessageStream::block_bytes() const noexcept {
  return link_->block_bytes();
}
StreamCounts MessageStream::counts() const noexcept {
  return link_->counts();
}
EndPoint& MessageStream::endpoint() const noexcept {
  return link_->endpoint();
}

}  // namespace rdmacomm
