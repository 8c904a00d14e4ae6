// mode_price - the cost of each way to wait and of each thread mode: latency, processor time, and number of sleeps.
//
// The server runs in a process of its own; this process is the client. Prints one line of "name=value" pairs.
//
// usage: mode_price --part=latency --polling=P --threads=T
//        mode_price --part=idle --polling=P --threads=T
//        mode_price --part=raw
//
// latency  round trips of 8 bytes by SEND, on one connection
// idle     64 connections without traffic for --seconds
// raw      busy polling, compared with a raw loop on the same queue pairs
#include <gflags/gflags.h>
#include <infiniband/verbs.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <mutex>
#include <vector>

#include "quantile.h"
#include "rdmacomm/session.h"
#include "support/mode_flags.h"

DEFINE_string(part, "latency", "part to run: latency, idle or raw");
DEFINE_int32(seconds, 10, "idle: number of seconds");
DEFINE_int32(connections, 64, "idle: number of connections");
DEFINE_double(most, 1e9, "idle: seconds of processor time per second, for each process; more cause exit status 1");
DEFINE_double(most_wakeups, 1e9, "idle: wake-ups per second, for each process; more cause exit status 1");
DEFINE_int32(count, 20000, "latency: number of round trips; raw: a tenth of this number in each of 60 rounds");

namespace rdmacomm {
namespace {

using Clock = std::chrono::steady_clock;
constexpr std::uint32_t kBytes = 8;
constexpr int kReceives = 16;
constexpr const char* kRawChannel = "raw";
constexpr const char* kDirectChannel = "direct";

[[noreturn]] void fail(const std::string& why) {
  std::fprintf(stderr, "mode_price: %s\n", why.c_str());
  std::_Exit(1);
}
void must(const Status& status) {
  if (!status) fail(status.message());
}

/// Resources that a process has used since it started.
struct Usage {
  double seconds = 0;  ///< of processors
  long sleeps = 0;     ///< of all its threads: voluntary context switches

  static Usage of(pid_t process) {
    Usage usage;
    clockid_t clock{};
    timespec time{};
    if (clock_getcpuclockid(process, &clock) != 0 || clock_gettime(clock, &time) != 0)
      fail("cannot read the CPU clock of the server process");
    usage.seconds = static_cast<double>(time.tv_sec) + 1e-9 * static_cast<double>(time.tv_nsec);
    for (const auto& task : std::filesystem::directory_iterator("/proc/" + std::to_string(process) + "/task")) {
      std::ifstream status(task.path() / "status");
      for (std::string word; status >> word;) {
        if (word != "voluntary_ctxt_switches:") continue;
        long count = 0;
        status >> count;
        usage.sleeps += count;
      }
    }
    return usage;
  }
};

/// The larger value of the two processes.
struct Larger {
  double share = 0;    ///< of a core
  double wakeups = 0;  ///< per second
};

/// Resources that both processes use during one measurement, which begins when this object is created.
class Price {
 public:
  explicit Price(pid_t server) : server_(server), mine_(Usage::of(getpid())), theirs_(Usage::of(server)) {}
  Larger print(double operations) const {
    const double wall = std::chrono::duration<double>(Clock::now() - start_).count();
    const Usage mine = Usage::of(getpid());
    const Usage theirs = Usage::of(server_);
    const auto my_sleeps = static_cast<double>(mine.sleeps - mine_.sleeps);
    const auto their_sleeps = static_cast<double>(theirs.sleeps - theirs_.sleeps);
    const double client = (mine.seconds - mine_.seconds) / wall;
    const double server = (theirs.seconds - theirs_.seconds) / wall;
    std::printf(" client_cpu=%.5f server_cpu=%.5f sleeps=%.3f\n", client, server,
                (my_sleeps + their_sleeps) / operations);
    return {std::max(client, server), std::max(my_sleeps, their_sleeps) / wall};
  }

 private:
  const pid_t server_;
  const Usage mine_;
  const Usage theirs_;
  const Clock::time_point start_ = Clock::now();
};

/// One process's memory: a message to send, and receives.
RDMABuffer make_memory(const RDMADevice& device) {
  auto memory = RDMABuffer::allocate(device, {.block_bytes = kBytes, .block_count = 1 + kReceives});
  if (!memory) fail(memory.error().message());
  return std::move(*memory);
}

programs::ModeFlags modes() {
  auto flags = programs::read_mode_flags();
  if (!flags) fail(flags.error().message());
  return *flags;
}

Status configure(HcaConfig& hca) {
  modes().apply(hca);
  hca.channels = {{.name = kDataChannel}};
  if (FLAGS_part != "raw") return {};
  for (const char* name : {kDirectChannel, kRawChannel}) {
    hca.channels.push_back({.name = name, .own_completion_queue = true});
  }
  return {};
}

/// Used by client and server. Answers each message, by hooks or in a loop. The client sends the first message, and
/// stops after `count` messages.
class Player final : public SessionHooks {
 public:
  explicit Player(bool is_client) : is_client_(is_client) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override { return configure(hca); }
  Status post_connecting(const EndPoint& endpoint) override {
    if (FLAGS_part == "idle") return {};
    if (!memory_) memory_ = make_memory(endpoint.device());
    for (RDMAChannel* channel : endpoint.channels()) {
      if (channel->name() == kRawChannel) continue;
      for (std::uint64_t id = 1; id <= kReceives; ++id) must(channel->post_recv(memory_.at(id), {.id = id}));
    }
    return {};
  }
  void on_recv_done(const EndPoint& endpoint, const Completion& completion) override {
    if (answer(endpoint.channel(), completion)) return;
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }

  /// The client's part. Returns half of each round-trip time, in microseconds.
  std::vector<double> play(const EndPoint& endpoint, int count) {
    left_ = count;
    times_.clear();
    times_.reserve(static_cast<std::size_t>(count));
    sent_at_ = Clock::now();
    send(endpoint.channel());
    if (endpoint.config().thread_mode == ThreadMode::kApplication) {
      answer_all(endpoint);
    } else {
      std::unique_lock lock(mutex_);
      changed_.wait(lock, [&] { return std::exchange(done_, false); });
    }
    return times_;
  }
  /// Answers messages until the peer disconnects.
  void answer_all(const EndPoint& endpoint) {
    std::array<Completion, kReceives> batch;
    for (;;) {
      const auto waited = endpoint.wait(batch, Deadline::never());
      if (!waited) return;
      for (const Completion& each : *waited) {
        if (each.operation == Operation::kRecv && !answer(endpoint.channel(), each)) return;
      }
    }
  }
  void send(RDMAChannel& channel) {
    must(channel.post_send(memory_.at(0), {.flags = PostFlags::kInline | PostFlags::kUnsignaled}));
  }
  [[nodiscard]] RDMABuffer& memory() { return memory_; }

 private:
  /// Returns false after the client's last message.
  bool answer(RDMAChannel& channel, const Completion& completion) {
    must(channel.post_recv(memory_.at(completion.id), {.id = completion.id}));
    if (is_client_) {
      const auto now = Clock::now();
      times_.push_back(std::chrono::duration<double, std::micro>(now - sent_at_).count() / 2);
      if (--left_ == 0) return false;
      sent_at_ = now;
    }
    send(channel);
    return true;
  }

  const bool is_client_;
  RDMABuffer memory_;
  std::vector<double> times_;
  Clock::time_point sent_at_;
  int left_ = 0;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
};

SessionOptions options(std::uint16_t port) {
  return {.device = {.name = "soft0"}, .address = {"127.0.0.1", port}};
}

// ---- The raw loop

ibv_sge sge_of(const BufferSlice& slice) {
  return {slice.address, slice.length, slice.lkey};
}

/// One end of a channel, driven by bare verbs.
class RawEnd {
 public:
  RawEnd(RDMAChannel& channel, RDMABuffer& memory) : qp_(channel.native_handle()), cq_(qp_->send_cq) {
    out_ = sge_of(memory.at(0));
    for (std::uint64_t id = 1; id <= kReceives; ++id) {
      in_[id] = sge_of(memory.at(id));
      receive(id);
    }
    wr_.sg_list = &out_;
    wr_.num_sge = 1;
    wr_.opcode = IBV_WR_SEND;
  }
  void send() {
    // Unsignaled, like the library's, except for every 64th, whose completion frees places in the queue.
    wr_.send_flags = IBV_SEND_INLINE | (++sent_ % 64 == 0 ? static_cast<unsigned>(IBV_SEND_SIGNALED) : 0U);
    ibv_send_wr* bad = nullptr;
    if (ibv_post_send(qp_, &wr_, &bad) != 0) fail("ibv_post_send failed");
  }
  /// Waits for a message. Posts the receive again only after the answer, when no peer waits for it.
  void take() {
    for (;;) {
      ibv_wc wc;
      const int got = ibv_poll_cq(cq_, 1, &wc);
      if (got < 0 || (got == 1 && wc.status != IBV_WC_SUCCESS)) fail("a raw request failed");
      if (got == 0 || wc.opcode != IBV_WC_RECV) continue;
      taken_ = wc.wr_id;
      return;
    }
  }
  void give_back() { receive(taken_); }

 private:
  void receive(std::uint64_t id) {
    ibv_recv_wr wr{};
    wr.wr_id = id;
    wr.sg_list = &in_[id];
    wr.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    if (ibv_post_recv(qp_, &wr, &bad) != 0) fail("ibv_post_recv failed");
  }

  ibv_qp* qp_;
  ibv_cq* cq_;
  ibv_sge out_{};
  ibv_sge in_[kReceives + 1]{};
  ibv_send_wr wr_{};
  unsigned sent_ = 0;
  std::uint64_t taken_ = 0;
};

/// A channel used through the library: EndPoint::wait(), or RDMAChannel::poll() on a completion queue of its own.
struct LibraryEnd {
  Player& player;
  const EndPoint& endpoint;
  RDMAChannel& channel;
  RDMABuffer& memory = player.memory();
  const bool direct = channel.name() == kDirectChannel;
  const BufferSlice out = memory.at(0);  // slices made before, as in the raw loop
  std::uint64_t taken = 0;

  void send() { must(channel.post_send(out, {.flags = PostFlags::kInline | PostFlags::kUnsignaled})); }
  void take() {
    Completion completion;
    if (direct) {
      for (Polled polled; polled.empty();) {
        polled = channel.poll({&completion, 1});
        must(polled.outcome());
      }
    } else {
      must(endpoint.wait({&completion, 1}, Deadline::never()).status());
    }
    taken = completion.id;
  }
  void give_back() { must(channel.post_recv(memory.at(taken), {.id = taken})); }
};

constexpr int kRounds = 60;

/// Microseconds for one way, the mean of a round. The server answers the same number of messages.
template <typename End>
double round_of(End& end, bool is_client, int count) {
  const auto start = Clock::now();
  if (is_client) end.send();
  for (int i = 0; i < count; ++i) {
    end.take();
    if (!is_client || i + 1 < count) end.send();
    end.give_back();
  }
  return std::chrono::duration<double, std::micro>(Clock::now() - start).count() / 2 / count;
}

/// Measures the three alternately, so that changes in machine speed affect all of them alike.
std::array<std::vector<double>, 3> take_turns(Player& player, const EndPoint& endpoint, bool is_client) {
  auto raw_memory = make_memory(endpoint.device());
  RawEnd raw(endpoint.channel(kRawChannel), raw_memory);
  LibraryEnd waiting{player, endpoint, endpoint.channel()};
  LibraryEnd direct{player, endpoint, endpoint.channel(kDirectChannel)};
  must(endpoint.sync_with_peer("posted", Deadline::after(std::chrono::seconds(20))));
  std::array<std::vector<double>, 3> times;
  for (int round = 0; round < kRounds; ++round) {
    times[0].push_back(round_of(raw, is_client, FLAGS_count / 10));
    times[1].push_back(round_of(direct, is_client, FLAGS_count / 10));
    times[2].push_back(round_of(waiting, is_client, FLAGS_count / 10));
  }
  must(endpoint.sync_with_peer("played", Deadline::after(std::chrono::seconds(20))));
  return times;
}

// ---- The two processes

/// Serves until the client closes its end of the pipe.
int serve(int port_out, int end_in) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  const auto player = std::make_shared<Player>(false);
  const ServerSession session(options(0), player);
  must(session.start());
  const std::uint16_t port = session.port();
  if (write(port_out, &port, sizeof(port)) != sizeof(port)) return 1;
  if (FLAGS_part != "idle") {
    auto endpoint = session.accept(Deadline::after(std::chrono::seconds(20)));
    if (!endpoint) fail(endpoint.error().message());
    if (FLAGS_part == "raw") (void)take_turns(*player, *endpoint, false);
    if (endpoint->config().thread_mode == ThreadMode::kApplication) player->answer_all(*endpoint);
  }
  char end = 0;
  (void)!read(end_in, &end, 1);
  return 0;
}

void measure(const ClientSession& session, Player& player, pid_t server) {
  const int connections = FLAGS_part == "idle" ? FLAGS_connections : 1;
  std::vector<EndPoint> endpoints;
  for (int i = 0; i < connections; ++i) {
    auto endpoint = session.connect();
    if (!endpoint) fail(endpoint.error().message());
    endpoints.push_back(std::move(*endpoint));
  }
  if (FLAGS_part == "raw") {
    const auto times = take_turns(player, endpoints.front(), true);
    std::printf("part=raw raw=%.4f direct=%.4f wait=%.4f\n", quantile(times[0], 0.5), quantile(times[1], 0.5),
                quantile(times[2], 0.5));
    return;
  }
  if (FLAGS_part == "idle") {
    usleep(1'000'000);  // time for the rest of set-up
    const Price price(server);
    usleep(static_cast<useconds_t>(FLAGS_seconds) * 1'000'000);
    std::printf("part=idle connections=%d", connections);
    const Larger larger = price.print(FLAGS_seconds);
    if (larger.share > FLAGS_most) {
      fail("a process takes " + std::to_string(larger.share) + " of a core, more than --most");
    }
    if (larger.wakeups > FLAGS_most_wakeups) {
      fail("a process wakes up " + std::to_string(larger.wakeups) + " times per second, more than --most_wakeups");
    }
    return;
  }
  (void)player.play(endpoints.front(), FLAGS_count / 10);
  const Price price(server);
  const std::vector<double> times = player.play(endpoints.front(), FLAGS_count);
  std::printf("part=latency median=%.3f p99=%.3f", quantile(times, 0.5), quantile(times, 0.99));
  (void)price.print(2.0 * FLAGS_count);
}

int run() {
  int port_pipe[2];
  int end_pipe[2];
  if (pipe(port_pipe) != 0 || pipe(end_pipe) != 0) fail("cannot create a pipe");
  const pid_t server = fork();
  if (server == 0) {
    close(end_pipe[1]);
    std::_Exit(serve(port_pipe[1], end_pipe[0]));
  }
  close(port_pipe[1]);
  std::uint16_t port = 0;
  if (read(port_pipe[0], &port, sizeof(port)) != sizeof(port)) fail("the server did not start");
  {
    const auto player = std::make_shared<Player>(true);
    const ClientSession session(options(port), player);
    measure(session, *player, server);
  }
  std::fflush(stdout);
  close(end_pipe[1]);
  int status = 0;
  return waitpid(server, &status, 0) == server && status == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rdmacomm

int main(int argc, char** argv) {
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  return rdmacomm::run();
}
