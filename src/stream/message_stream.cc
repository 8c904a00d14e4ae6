#include "rdmacomm/message_stream.h"

#include <algorithm>

#include "base/copy_bytes.h"
#include "rdmacomm/channel.h"
#include "stream/stream_link.h"

namespace rdmacomm {

ChannelConfig MessageStream::channel(const StreamOptions& options, std::string name) {
  ChannelConfig config = options.channel(std::move(name));
  config.adapter.send_depth = *config.adapter.send_depth + StreamLink::more_sends(true);
  config.adapter.recv_depth = *config.adapter.recv_depth + StreamLink::more_receives(options, true);
  return config;
}

Result<MessageStream> MessageStream::open(const EndPoint& endpoint, RDMAChannel& channel, const BufferPool& pool,
                                          const StreamOptions& options, Deadline deadline) {
  if (!pool)
    return make_error(Errc::kInvalidArgument, "a stream of messages needs a pool; the given BufferPool is empty");
  auto link = StreamLink::open(endpoint, channel, pool, options, deadline);
  if (!link) return link.error();
  return MessageStream(std::move(*link));
}

MessageStream::MessageStream(std::shared_ptr<StreamLink> link) : link_(std::move(link)) {}

MessageStream::~MessageStream() {
  if (link_) link_->abandon();
}

MessageStream& MessageStream::operator=(MessageStream&& other) noexcept {
  if (this == &other) return *this;
  if (link_) link_->abandon();
  link_ = std::move(other.link_);
  return *this;
}

StreamLink& MessageStream::link() const {
  if (!link_) detail::die_of_misuse("an empty stream was used: it was never opened, or moved from", nullptr);
  return *link_;
}

Result<std::span<std::byte>> MessageStream::lend(Deadline deadline) {
  return link().lend(deadline);
}
Status MessageStream::commit(std::size_t count) {
  return link().commit_message(count);
}

Status MessageStream::send(std::span<const std::byte> message, Deadline deadline) {
  if (message.size() > block_bytes()) return send_large(message, deadline);
  const auto room = link().lend(deadline);
  if (!room) return room.error();
  copy_bytes(room->data(), message.data(), message.size());
  return link().commit_message(message.size());
}

Status MessageStream::send_large(std::span<const std::byte> message, Deadline deadline) {
  const std::size_t most = link().part_bytes();
  for (std::size_t offset = 0; offset < message.size();) {
    const auto part = message.subspan(offset, std::min(most, message.size() - offset));
    auto lease = link().take(part.size(), deadline);
    Status sent = lease.status();
    if (sent) {
      copy_bytes(lease->data(), part.data(), part.size());
      sent = link().announce(*std::move(lease), message.size(), offset, deadline);
    }
    if (!sent) {
      // The peer has received a part of the message already, so the stream cannot continue.
      if (offset > 0) link().abort("a message could not be sent as a whole: " + sent.message());
      return sent;
    }
    offset += part.size();
  }
  return {};
}

Status MessageStream::send(BufferLease lease, Deadline deadline) {
  if (!lease) return send(std::span<const std::byte>(), deadline);
  const std::uint32_t bytes = lease.size();
  if (bytes <= link().part_bytes()) return link().announce(std::move(lease), bytes, 0, deadline);
  return send(lease.bytes(), deadline);
}

Status MessageStream::flush(Deadline deadline) {
  return link().flush(deadline);
}
Status MessageStream::finish(Deadline deadline) {
  return link().finish(deadline);
}

Result<MessagePart> MessageStream::receive(Deadline deadline) {
  StreamLink::Arrived arrived;
  if (Status come = link().next(deadline, arrived); !come) return come.error();
  if (arrived.is_end) return MessagePart();
  if (arrived.part)
    return MessagePart(std::move(arrived.part->lease), arrived.part->message_bytes, arrived.part->offset);
  return MessagePart(StreamBlock(link(), arrived.slot, arrived.slice));
}

Status MessageStream::close(Deadline deadline) {
  return link().close(deadline);
}
void MessageStream::abort(std::string_view reason) {
  link().abort(reason);
}
Status MessageStream::status() const {
  return link().status();
}
std::size_t MessageStream::block_bytes() const {
  return link().block_bytes();
}
StreamCounts MessageStream::counts() const {
  return link().counts();
}
const EndPoint& MessageStream::endpoint() const {
  return link().endpoint();
}

}  // namespace rdmacomm
