// Questions and answers as messages of any size, with their boundaries. Large ones go through a pool of memory.
// Here a question is a line, and its answer the line read backwards.
#include <algorithm>
#include <string>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr StreamOptions kOptions{.block_bytes = 4 << 10};

Status add_channel(HcaConfig& hca, const PeerInfo&) {  // on both peers
  hca.channels = {MessageStream::channel(kOptions, "messages")};
  return {};
}

Result<MessageStream> open(const Result<EndPoint>& peer) {
  const auto pool = peer ? BufferPool::create(peer->device(), {.remote_access = RemoteAccess::kRead}) : peer.error();
  if (!pool) return pool.error();
  return MessageStream::open(*peer, peer->channel("messages"), *pool, kOptions, 20s);
}

/// The next message as a whole; empty: no more messages, because the peer has ended the stream.
Result<std::string> receive(MessageStream& stream) {
  std::string text;
  for (;;) {
    const auto part = stream.receive(60s);
    if (!part) return part.error();
    text.append(reinterpret_cast<const char*>(part->bytes().data()), part->bytes().size());
    if (!*part || part->last()) return text;
  }
}

Status serve() {
  ServerSession server({.address = {.port = 0}}, {.lazy_config_hca = add_channel});
  if (Status listening = two_ends::listen(server); !listening) return listening;
  auto stream = open(server.accept(60s));
  if (!stream) return stream.error();
  for (;;) {
    auto question = receive(*stream);
    if (!question) return question.error();
    if (question->empty()) return stream->close(20s);
    std::ranges::reverse(*question);
    if (Status sent = stream->send(std::as_bytes(std::span(*question)), 20s); !sent) return sent;
  }
}

Status ask(const HostPort& address) {
  ClientSession session({.address = address}, {.lazy_config_hca = add_channel});
  auto stream = open(session.connect());
  if (!stream) return stream.error();
  for (std::string question; std::getline(std::cin, question);) {
    if (question.empty()) continue;
    if (Status sent = stream->send(std::as_bytes(std::span(question)), 20s); !sent) return sent;
    const auto answer = receive(*stream);
    if (!answer) return answer.error();
    std::cout << *answer << std::endl;
  }
  return stream->close(20s);
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, ask);
}
