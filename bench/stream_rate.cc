// stream_rate - the throughput of streams, compared with raw posts of the same size and depth on the same queue pairs.
//
// The server runs in a process of its own; this process is the client, which sends. Each round measures all ways in
// turn, so that changes in machine speed affect all of them alike. Prints a table of medians in GB/s, and ratios.
//
//   write    WRITEs by the bare channel, at most --depth outstanding, into --depth blocks in turn; the receiver does
//            not look at the data
//   send     SENDs by the bare channel into posted receives, which are posted again; no flow control
//   stream   RDMAStream: the sender uses lend and commit, the receiver next and release; no byte is copied or looked at
//   copied   RDMAStream with write() and read()
//   message  MessageStream: one message per block, by lend and commit
//   large    MessageStream: messages in blocks leased from a pool, which the receiver reads into its own blocks
//
// usage: stream_rate [--sizes=4096,65536,...] [--ways=send,message,...] [--depth=16] [--rounds=15] [--milliseconds=40]
//
// Exit status 1: messages reach less than 0.9 times the rate of raw SENDs at 4 KiB, or less than 0.97 times at 64 KiB
// and above. Sizes that MessageStream sends as blocks by default are measured as "message", larger ones as "large".
#include <gflags/gflags.h>
#include <sched.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <map>
#include <sstream>
#include <vector>

#include "rdmacomm/message_stream.h"
#include "rdmacomm/session.h"
#include "rdmacomm/stream.h"

DEFINE_string(sizes, "4096,16384,65536,262144,1048576", "bytes of each block; a list");
DEFINE_string(ways, "write,send,stream,copied,message,large", "ways to measure; a list, to profile some of them");
DEFINE_int32(depth, 16, "number of blocks in flight");
DEFINE_int32(rounds, 15, "number of rounds; the result is their median");
DEFINE_int32(milliseconds, 40, "approximate time of each way in each round");

namespace rdmacomm {
namespace {

using Clock = std::chrono::steady_clock;

enum class Way { kWrite, kSend, kStream, kCopied, kMessage, kLarge };
constexpr std::array kWays = {Way::kWrite, Way::kSend, Way::kStream, Way::kCopied, Way::kMessage, Way::kLarge};
constexpr std::array kNames = {"write", "send", "stream", "copied", "message", "large"};

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "stream_rate: %s\n", why.c_str());
  std::_Exit(1);
}
void must(const Status& status) {
  if (!status) fail(status.message());
}
template <typename T>
T must(Result<T> result) {
  if (!result) fail(result.error().message());
  return std::move(*result);
}
Deadline soon() {
  return Deadline::after(std::chrono::seconds(60));
}

std::vector<std::size_t> sizes() {
  std::vector<std::size_t> all;
  std::istringstream text(FLAGS_sizes);
  for (std::string word; std::getline(text, word, ',');) all.push_back(std::stoul(word));
  return all;
}

bool is_wanted(Way way) {
  const std::string name = kNames[static_cast<std::size_t>(way)];
  return ("," + FLAGS_ways + ",").find("," + name + ",") != std::string::npos;
}

enum class End { kSender, kReceiver };

StreamOptions stream_of(std::size_t size, End end) {
  const bool sends = end == End::kSender;
  return {.block_bytes = size,
          .write_blocks = sends ? FLAGS_depth : 0,
          .read_blocks = sends ? 0 : FLAGS_depth,
          .borrowed_blocks = 0};
}
std::string stream_name(std::size_t size) {
  return "stream " + std::to_string(size);
}

std::string messages_name(std::size_t size) {
  return "messages " + std::to_string(size);
}

constexpr const char* kRaw = "raw";

HcaConfig config(End end) {
  HcaConfig hca{.channels = {}};
  hca.channels.push_back({.name = kRaw, .own_completion_queue = true});
  for (const std::size_t size : sizes()) {
    hca.channels.push_back(stream_of(size, end).channel(stream_name(size)));
    hca.channels.push_back(MessageStream::channel(stream_of(size, end), messages_name(size)));
  }
  return hca;
}

/// Used by client and server: memory for the raw ways, and a stream for each size.
struct Side {
  Side(EndPoint endpoint_, End end) : endpoint(std::move(endpoint_)) {
    const std::size_t largest = std::bit_ceil(std::ranges::max(sizes()));
    const BufferPool pool = must(BufferPool::create(
        endpoint.device(),
        {.total_bytes = 16 * largest, .largest_block = largest, .remote_access = RemoteAccess::kRead}));
    leases = pool;
    for (const std::size_t size : sizes()) {
      const StreamOptions options = stream_of(size, end);
      messages[size] =
          must(MessageStream::open(endpoint, endpoint.channel(messages_name(size)), pool, options, soon()));
      streams[size] = must(RDMAStream::open(endpoint, endpoint.channel(stream_name(size)), options, soon()));
    }
  }
  void synchronize() const { must(endpoint.sync_with_peer("turn", soon())); }
  [[nodiscard]] RDMAChannel& raw() const { return endpoint.channel(kRaw); }
  /// Takes the next completions of the raw channel.
  std::size_t take(std::span<Completion> out) const {
    const Polled polled = raw().poll(out);
    must(polled.outcome());
    for (const Completion& each : polled) must(each.status());
    if (polled.empty() && ++empty_polls_ % WaitOptions{}.yield_every == 0) sched_yield();  // like the library's waits
    return polled.size();
  }

  mutable unsigned empty_polls_ = 0;
  EndPoint endpoint;
  BufferPool leases;
  std::map<std::size_t, RDMAStream> streams;
  std::map<std::size_t, MessageStream> messages;
};

RDMABuffer make_memory(const RDMADevice& device) {
  auto memory = must(RDMABuffer::allocate(device, {.name = "blocks",
                                                   .block_bytes = std::ranges::max(sizes()),
                                                   .block_count = static_cast<std::size_t>(FLAGS_depth),
                                                   .remote_access = RemoteAccess::kWrite}));
  std::memset(memory.data(), 1, memory.size());
  return memory;
}

/// One way, in one process: sends or receives `count` blocks of `size`.
class Turn {
 public:
  Turn(Side& side, RDMABuffer& memory, std::size_t size, std::size_t count)
      : side_(side),
        memory_(memory),
        stream_(side.streams.at(size)),
        messages_(side.messages.at(size)),
        size_(size),
        count_(count) {}

  void send(Way way) {
    switch (way) {
      case Way::kWrite:
      case Way::kSend: return send_raw(way);
      case Way::kStream:
        for (std::size_t i = 0; i < count_; ++i) {
          must(stream_.lend(soon_).status());
          must(stream_.commit(size_));
        }
        break;
      case Way::kCopied:
        for (std::size_t i = 0; i < count_; ++i) must(stream_.write(block(i).bytes(), soon_));
        break;
      case Way::kMessage:
        for (std::size_t i = 0; i < count_; ++i) {
          must(messages_.lend(soon_).status());
          must(messages_.commit(size_));
        }
        return must(messages_.flush(soon_));
      case Way::kLarge:
        for (std::size_t i = 0; i < count_; ++i) {
          must(messages_.send(must(side_.leases.take(size_)), soon_));
        }
        return must(messages_.flush(soon_));
    }
    must(stream_.flush(soon_));
  }
  void receive(Way way) {
    switch (way) {
      case Way::kWrite: return;
      case Way::kSend: return receive_raw();
      case Way::kStream:
        for (std::size_t i = 0; i < count_; ++i) must(stream_.next(soon_));
        return;
      case Way::kCopied:
        for (std::size_t left = count_ * size_; left > 0;) left -= must(stream_.read(block(0).bytes(), soon_));
        return;
      case Way::kMessage:
      case Way::kLarge:
        for (std::size_t i = 0; i < count_; ++i) must(messages_.receive(soon_));
        return;
    }
  }

 private:
  [[nodiscard]] BufferSlice block(std::size_t index) const {
    return must(memory_.slice(index % memory_.block_count() * size_, size_));
  }
  void send_raw(Way way) {
    const auto region = side_.endpoint.remote_region("blocks");
    const auto depth = static_cast<std::size_t>(FLAGS_depth);
    std::array<Completion, 16> done;
    for (std::size_t posted = 0, sent = 0; sent < count_;) {
      for (; posted < count_ && posted - sent < depth; ++posted) {
        const std::size_t at = posted % depth * size_;
        must(way == Way::kWrite ? side_.raw().post_write(block(posted), region->slice_unchecked(at), {.id = posted})
                                : side_.raw().post_send(block(posted), {.id = posted}));
      }
      sent += side_.take(done);
    }
  }
  void receive_raw() {
    std::array<Completion, 16> done;
    for (std::size_t taken = 0; taken < count_;) {
      const std::size_t got = side_.take(done);
      for (std::size_t i = 0; i < got; ++i) {
        if (posted_ < count_) post_receive();
      }
      taken += got;
    }
  }

 public:
  void post_receive() {
    must(side_.raw().post_recv(block(posted_), {.id = posted_}));
    ++posted_;
  }

 private:
  Side& side_;
  RDMABuffer& memory_;
  RDMAStream& stream_;
  MessageStream& messages_;
  const std::size_t size_;
  const std::size_t count_;
  std::size_t posted_ = 0;
  const Deadline soon_ = soon();
};

/// The client tells the server how many blocks to expect, so that a measurement takes about the time that was asked
/// for.
template <typename Play>
void take_turns(Side& side, RDMABuffer& memory, Play play) {
  for (int round = 0; round < FLAGS_rounds; ++round) {
    for (const std::size_t size : sizes()) {
      for (const Way way : kWays) {
        if (!is_wanted(way)) continue;
        // Assumes about 20 GB/s, and half of that for small blocks.
        const double bytes = 20e6 * FLAGS_milliseconds / (size < 65536 ? 2 : 1);
        const auto count = std::max<std::size_t>(64, static_cast<std::size_t>(bytes / static_cast<double>(size)));
        Turn turn(side, memory, size, count);
        play(turn, way, size, count);
      }
    }
  }
}

SessionOptions options(std::uint16_t port) {
  return {.device = {.name = "soft0"}, .address = {"127.0.0.1", port}};
}

int serve(int port_out) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto memory = std::make_shared<RDMABuffer>();
  const ServerSession session(options(0), {.init_session =
                                               [&](const RDMADevice& device) {
                                                 *memory = make_memory(device);
                                                 return Status();
                                               },
                                           .lazy_config_hca =
                                               [&](HcaConfig& hca, const PeerInfo& /*peer*/) {
                                                 hca = config(End::kReceiver);
                                                 hca.publish(*memory);
                                                 return Status();
                                               }});
  must(session.start());
  const std::uint16_t port = session.port();
  if (write(port_out, &port, sizeof(port)) != sizeof(port)) return 1;
  Side side(must(session.accept(soon())), End::kReceiver);
  take_turns(side, *memory, [&](Turn& turn, Way way, std::size_t, std::size_t count) {
    const auto receives = std::min(count, static_cast<std::size_t>(FLAGS_depth));
    for (std::size_t i = 0; way == Way::kSend && i < receives; ++i) turn.post_receive();
    side.synchronize();
    turn.receive(way);
    side.synchronize();
  });
  return 0;
}

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::ranges::nth_element(values, middle);
  return *middle;
}

/// Median over the rounds of the ratio first / second.
double median_ratio(const std::vector<double>& first, const std::vector<double>& second) {
  std::vector<double> ratios;
  for (std::size_t i = 0; i < first.size() && i < second.size(); ++i) ratios.push_back(first[i] / second[i]);
  return median(ratios);
}

/// The share of the rate of raw SENDs that messages of that size must reach.
double bound_of(std::size_t size) {
  return size >= (std::size_t{64} << 10) ? 0.97 : size == 4096 ? 0.9 : 0;
}

/// Returns whether all bounds are kept.
bool measure(Side& side) {
  RDMABuffer memory = make_memory(side.endpoint.device());
  std::map<std::pair<std::size_t, Way>, std::vector<double>> rates;
  take_turns(side, memory, [&](Turn& turn, Way way, std::size_t size, std::size_t count) {
    side.synchronize();
    const auto start = Clock::now();
    turn.send(way);
    const double seconds = std::chrono::duration<double>(Clock::now() - start).count();
    rates[{size, way}].push_back(1e-9 * static_cast<double>(size * count) / seconds);
    side.synchronize();
  });
  std::printf("%d blocks in flight, GB/s, and ratios within a round, medians of %d rounds\n\n| block |", FLAGS_depth,
              FLAGS_rounds);
  for (const char* name : kNames) std::printf(" %s |", name);
  std::printf(" stream / write | message / send | large / send |\n|---|---|---|---|---|---|---|---|---|---|\n");
  std::string missed;
  for (const std::size_t size : sizes()) {
    std::printf("| %zu |", size);
    for (const Way way : kWays) std::printf(" %.2f |", median(rates[{size, way}]));
    const auto ratio = [&](Way first, Way second) { return median_ratio(rates[{size, first}], rates[{size, second}]); };
    std::printf(" %.2f | %.2f | %.2f |\n", ratio(Way::kStream, Way::kWrite), ratio(Way::kMessage, Way::kSend),
                ratio(Way::kLarge, Way::kSend));
    const Way usual = size <= StreamOptions{}.block_bytes ? Way::kMessage : Way::kLarge;
    if (is_wanted(usual) && is_wanted(Way::kSend) && ratio(usual, Way::kSend) < bound_of(size)) {
      missed += " " + std::to_string(size);
    }
  }
  if (!missed.empty()) std::printf("\nmessages are slower than the bound allows, at these sizes:%s\n", missed.c_str());
  return missed.empty();
}

int run() {
  int port_pipe[2];
  if (pipe(port_pipe) != 0) fail("cannot create a pipe");
  const pid_t server = fork();
  if (server == 0) std::_Exit(serve(port_pipe[1]));
  std::uint16_t port = 0;
  close(port_pipe[1]);
  if (read(port_pipe[0], &port, sizeof(port)) != sizeof(port)) fail("the server did not start");
  bool kept = false;
  {
    const ClientSession session(options(port), {.lazy_config_hca = [](HcaConfig& hca, const PeerInfo& /*peer*/) {
                                  hca = config(End::kSender);
                                  return Status();
                                }});
    Side side(must(session.connect()), End::kSender);
    kept = measure(side);
  }
  int status = 0;
  return waitpid(server, &status, 0) == server && status == 0 && kept ? 0 : 1;
}

}  // namespace
}  // namespace rdmacomm

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return rdmacomm::run();
}
