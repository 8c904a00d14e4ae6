// Starts many processes on soft0 with many queue pairs each, connects all, sends one verified message over each queue
// pair, and prints the time and memory.
#include <gflags/gflags.h>
#include <infiniband/verbs.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <new>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "quantile.h"
#include "softdev/common/api.h"
#include "verbs/handles.h"

DEFINE_uint32(processes, 2, "2 to 256: number of processes; each one is connected to each other one");
DEFINE_uint32(queue_pairs, 1, "1 to 4096: number of queue pairs between two processes");
DEFINE_uint32(depth, 16, "number of send requests, and of receives, of a queue pair");
DEFINE_bool(events, false, "each process sleeps until a completion arrives, with a completion channel");
DEFINE_uint32(seconds, 60, "number of seconds after which the run fails; 0: no limit");

namespace {

using namespace rdmacomm;  // NOLINT(google-build-using-namespace): a program
using Clock = std::chrono::steady_clock;

constexpr std::uint32_t kMessageBytes = 64;

/// Memory of a process in KiB: its share of resident memory, and the kernel's page tables for it.
struct Memory {
  long resident = 0;
  long page_tables = 0;
};

struct Figures {
  Memory before;  // with the device open and the messages' memory registered
  Memory after;
  long descriptors = 0;
  long threads = 0;
  double create_ms = 0;
  double connect_ms = 0;
  double messages_ms = 0;
  // Medians.
  double empty_poll_us = 0;
  double dereg_mr_us = 0;
  double waiting_poll_us = 0;  // by a second thread, while a request waits
};

/// Memory shared by the processes. The numbers of all queue pairs follow it.
struct Table {
  pthread_barrier_t barrier;
  std::array<Figures, 256> figures;
  [[nodiscard]] std::uint32_t& number(std::uint32_t owner, std::uint32_t peer, std::uint32_t lane) {
    auto* const numbers = reinterpret_cast<std::uint32_t*>(this + 1);
    return numbers[(std::size_t{owner} * FLAGS_processes + peer) * FLAGS_queue_pairs + lane];
  }
};

[[noreturn]] void fail(const std::string& what) {
  std::fprintf(stderr, "soft0_scale: %s\n", what.c_str());
  _exit(1);
}

void require(bool good, const char* what) {
  if (!good) fail(std::string(what) + ": " + std::strerror(errno));
}
void require_zero(int error, const char* what) {
  if (error != 0) fail(std::string(what) + ": " + std::strerror(error));
}

/// Value of the line "NAME:  N kB" in a file.
long kilobytes(const char* path, std::string_view name) {
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name)) return std::strtol(line.c_str() + name.size(), nullptr, 10);
  }
  fail(std::string(path) + " has no line " + std::string(name));
}

Memory memory_now() {
  return {kilobytes("/proc/self/smaps_rollup", "Pss:"), kilobytes("/proc/self/status", "VmPTE:")};
}

long entries_of(const char* directory) {
  const std::filesystem::directory_iterator entries(directory);
  return std::distance(begin(entries), end(entries));
}

double milliseconds_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

/// The median time of a call of `work`, in microseconds. Before each call, `prepare` is called, and not measured.
template <typename Work, typename Prepare>
double median_us(Work&& work, Prepare&& prepare) {
  constexpr std::size_t kCalls = 1001;
  std::vector<double> times(kCalls);
  for (double& time : times) {
    prepare();
    const auto start = Clock::now();
    work();
    time = std::chrono::duration<double, std::micro>(Clock::now() - start).count();
  }
  return quantile(times, 0.5);
}
template <typename Work>
double median_us(Work&& work) {
  return median_us(work, [] {});
}

/// One of the processes.
class Node {
 public:
  Node(Table& table, std::uint32_t self) : table_(table), self_(self) {}

  void run() {
    open();
    Figures& figures = table_.figures[self_];
    figures.before = memory_now();
    wait_for_all();
    const auto start = Clock::now();
    create();
    wait_for_all();
    figures.create_ms = milliseconds_since(start);
    for (std::uint32_t i = 0; i < count(); ++i) connect(i);
    wait_for_all();
    figures.connect_ms = milliseconds_since(start) - figures.create_ms;
    for (std::uint32_t i = 0; i < count(); ++i) send(i);
    verify();
    wait_for_all();
    figures.messages_ms = milliseconds_since(start) - figures.create_ms - figures.connect_ms;
    figures.after = memory_now();
    figures.descriptors = entries_of("/proc/self/fd");
    figures.threads = entries_of("/proc/self/task");
    wait_for_all();
    if (self_ == 0) measure_calls(figures);
    wait_for_all();  // no process closes before all have measured
    release();
  }

 private:
  static const verbs::Api& api() { return softdev::api(); }
  [[nodiscard]] std::uint32_t count() const { return (FLAGS_processes - 1) * FLAGS_queue_pairs; }
  [[nodiscard]] std::uint32_t peer(std::uint32_t i) const {
    const std::uint32_t at = i / FLAGS_queue_pairs;
    return at < self_ ? at : at + 1;
  }
  [[nodiscard]] static std::uint32_t lane(std::uint32_t i) { return i % FLAGS_queue_pairs; }
  void wait_for_all() { pthread_barrier_wait(&table_.barrier); }

  void open() {
    const verbs::DeviceList list(api());
    context_ = verbs::ContextHandle(api(), api().open_device(list[0]));
    require(static_cast<bool>(context_), "open");
    pd_ = verbs::PdHandle(api(), api().alloc_pd(context_.get()));
    const int completions = static_cast<int>(2 * FLAGS_depth * count());
    if (FLAGS_events) channel_ = verbs::CompChannelHandle(api(), api().create_comp_channel(context_.get()));
    cq_ = verbs::CqHandle(api(), api().create_cq(context_.get(), completions, nullptr, channel_.get(), 0));
    require(pd_ && cq_, "create_cq");
    bytes_ = std::size_t{2} * kMessageBytes * count();
    memory_ = static_cast<std::byte*>(api().allocate_memory(context_.get(), bytes_, false));
    require(memory_ != nullptr, "allocate_memory");
    std::memset(memory_, 0, bytes_);
    mr_ = register_memory();
  }
  [[nodiscard]] verbs::MrHandle register_memory() const {
    verbs::MrHandle made(api(), api().reg_mr(pd_.get(), memory_, bytes_, IBV_ACCESS_LOCAL_WRITE));
    require(static_cast<bool>(made), "reg_mr");
    return made;
  }

  void create() {
    for (std::uint32_t i = 0; i < count(); ++i) {
      ibv_qp_init_attr init{};
      init.send_cq = init.recv_cq = cq_.get();
      init.qp_type = IBV_QPT_RC;
      init.cap = {FLAGS_depth, FLAGS_depth, 1, 1, 0};
      init.sq_sig_all = 1;
      queue_pairs_.emplace_back(api(), api().create_qp(pd_.get(), &init));
      require(static_cast<bool>(queue_pairs_.back()), "create_qp");
      table_.number(self_, peer(i), lane(i)) = queue_pairs_.back()->qp_num;
    }
  }

  void connect(std::uint32_t i) {
    ibv_gid_entry gid{};
    require_zero(api().query_gid_entry(context_.get(), 1, 1, &gid), "query_gid");
    ibv_qp_attr a{};
    a.qp_state = IBV_QPS_INIT;
    a.port_num = 1;
    const auto modify = [&](int mask) {
      require_zero(api().modify_qp(queue_pairs_[i].get(), &a, mask | IBV_QP_STATE), "modify_qp");
    };
    modify(IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS);
    a.qp_state = IBV_QPS_RTR;
    a.path_mtu = IBV_MTU_4096;
    a.dest_qp_num = table_.number(peer(i), self_, lane(i));
    a.max_dest_rd_atomic = 1;
    a.min_rnr_timer = 1;  // 10 us
    a.ah_attr.is_global = 1;
    a.ah_attr.port_num = 1;
    a.ah_attr.grh.dgid = gid.gid;
    a.ah_attr.grh.sgid_index = 1;
    modify(IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN | IBV_QP_MAX_DEST_RD_ATOMIC |
           IBV_QP_MIN_RNR_TIMER);
    a.qp_state = IBV_QPS_RTS;
    a.timeout = 14;  // 67 ms
    a.retry_cnt = 7;
    a.rnr_retry = 7;  // forever
    a.max_rd_atomic = 1;
    modify(IBV_QP_TIMEOUT | IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_SQ_PSN | IBV_QP_MAX_QP_RD_ATOMIC);
    ibv_sge slice = inbox(i);
    ibv_recv_wr receive{};
    receive.wr_id = i;
    receive.sg_list = &slice;
    receive.num_sge = 1;
    ibv_recv_wr* bad = nullptr;
    require_zero(ibv_post_recv(queue_pairs_[i].get(), &receive, &bad), "post_recv");
  }

  [[nodiscard]] ibv_sge slice(std::size_t at) const {
    return {reinterpret_cast<std::uint64_t>(memory_) + at * kMessageBytes, kMessageBytes, mr_->lkey};
  }
  [[nodiscard]] ibv_sge inbox(std::uint32_t i) const { return slice(std::size_t{2} * i); }
  [[nodiscard]] ibv_sge outbox(std::uint32_t i) const { return slice(std::size_t{2} * i + 1); }
  /// Every message has different contents.
  static std::array<std::uint32_t, kMessageBytes / 4> message(std::uint32_t from, std::uint32_t to,
                                                              std::uint32_t lane) {
    std::array<std::uint32_t, kMessageBytes / 4> words{};
    for (std::uint32_t i = 0; i < words.size(); ++i) words[i] = (from << 20 ^ to << 10 ^ lane) + i * 0x9e3779b9;
    return words;
  }

  void send(std::uint32_t i) {
    const auto words = message(self_, peer(i), lane(i));
    ibv_sge slice = outbox(i);
    std::memcpy(reinterpret_cast<void*>(slice.addr), words.data(), kMessageBytes);
    ibv_send_wr request{};
    request.wr_id = i;
    request.opcode = IBV_WR_SEND;
    request.sg_list = &slice;
    request.num_sge = 1;
    ibv_send_wr* bad = nullptr;
    require_zero(ibv_post_send(queue_pairs_[i].get(), &request, &bad), "post_send");
  }

  void verify() {
    std::vector<bool> sent(count());
    std::vector<bool> received(count());
    for (std::uint32_t left = 2 * count(); left != 0;) {
      std::array<ibv_wc, 32> completions;
      const int found = ibv_poll_cq(cq_.get(), completions.size(), completions.data());
      if (found < 0) fail("poll_cq failed");
      if (found == 0 && FLAGS_events) sleep_for_completions();
      for (int k = 0; k < found; ++k) {
        const ibv_wc& wc = completions[static_cast<std::size_t>(k)];
        const auto i = static_cast<std::uint32_t>(wc.wr_id);
        if (wc.status != IBV_WC_SUCCESS) fail(std::string("a completion has failed: ") + ibv_wc_status_str(wc.status));
        if (wc.qp_num != queue_pairs_[i]->qp_num) fail("a completion belongs to another queue pair");
        std::vector<bool>& seen = wc.opcode == IBV_WC_RECV ? received : sent;
        if (seen[i]) fail("a completion arrived twice");
        seen[i] = true;
        if (wc.opcode == IBV_WC_RECV) verify_message(i, wc.byte_len);
      }
      left -= static_cast<std::uint32_t>(found);
    }
  }
  /// Sleeps until the next completion at most. Arms the queue first and then polls, so that a completion from before
  /// the arming is seen.
  void sleep_for_completions() {
    if (std::exchange(armed_, true)) {
      ibv_cq* cq = nullptr;
      void* context = nullptr;
      require_zero(api().get_cq_event(channel_.get(), &cq, &context), "get_cq_event");
      api().ack_cq_events(cq, 1);
    }
    require_zero(ibv_req_notify_cq(cq_.get(), 0), "req_notify_cq");
  }
  void verify_message(std::uint32_t i, std::uint32_t bytes) const {
    const auto expected = message(peer(i), self_, lane(i));
    const bool good = bytes == kMessageBytes &&
                      std::memcmp(reinterpret_cast<void*>(inbox(i).addr), expected.data(), kMessageBytes) == 0;
    if (!good) fail("a received message differs from the sent message");
  }

  /// While all other processes sleep.
  void measure_calls(Figures& figures) {
    figures.empty_poll_us = median_us([this] { poll_nothing(); });
    figures.dereg_mr_us = median_us([this] { mr_.reset(); }, [this] { mr_ = register_memory(); });
    mr_ = register_memory();
    send(0);  // there is no receive for it
    std::atomic<bool> done = false;
    std::thread second([&] {
      figures.waiting_poll_us = median_us([this] { poll_nothing(); });
      done = true;
    });
    while (!done) continue;  // as in a program that is busy: a system call that stops other processors takes longer
    second.join();
  }
  void poll_nothing() {
    ibv_wc completion{};
    if (ibv_poll_cq(cq_.get(), 1, &completion) != 0) fail("a completion arrived that no request has");
  }

  void release() {
    queue_pairs_.clear();
    mr_.reset();
    api().free_memory(context_.get(), memory_, bytes_, false);
  }

  Table& table_;
  const std::uint32_t self_;
  verbs::ContextHandle context_;
  verbs::PdHandle pd_;
  verbs::CompChannelHandle channel_;
  verbs::CqHandle cq_;
  bool armed_ = false;
  std::size_t bytes_ = 0;
  std::byte* memory_ = nullptr;
  verbs::MrHandle mr_;
  std::vector<verbs::QpHandle> queue_pairs_;
};

Table& make_table() {
  const std::size_t bytes = sizeof(Table) + std::size_t{4} * FLAGS_processes * FLAGS_processes * FLAGS_queue_pairs;
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  require(memory != MAP_FAILED, "mmap");
  auto& table = *new (memory) Table;
  pthread_barrierattr_t shared;
  pthread_barrierattr_init(&shared);
  pthread_barrierattr_setpshared(&shared, PTHREAD_PROCESS_SHARED);
  require_zero(pthread_barrier_init(&table.barrier, &shared, FLAGS_processes), "pthread_barrier_init");
  return table;
}

/// Returns whether all processes have succeeded. If one fails, the others are ended, because they would wait for it.
bool run_all(Table& table) {
  std::vector<pid_t> children;
  for (std::uint32_t self = 0; self < FLAGS_processes; ++self) {
    const pid_t pid = fork();
    require(pid >= 0, "fork");
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(FLAGS_seconds);
      Node(table, self).run();
      _exit(0);
    }
    children.push_back(pid);
  }
  bool good = true;
  while (!children.empty()) {
    int status = 0;
    const pid_t pid = wait(&status);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGALRM)
      std::fprintf(stderr, "soft0_scale: not finished within --seconds\n");
    std::erase(children, pid);
    if (status == 0) continue;
    if (good) {
      for (const pid_t other : children) kill(other, SIGKILL);
    }
    good = false;
  }
  return good;
}

void print(const Table& table) {
  Figures most;
  long before = 0;
  long after = 0;
  for (std::uint32_t i = 0; i < FLAGS_processes; ++i) {
    const Figures& figures = table.figures[i];
    before += figures.before.resident + figures.before.page_tables;
    after += figures.after.resident + figures.after.page_tables;
    most.descriptors = std::max(most.descriptors, figures.descriptors);
    most.threads = std::max(most.threads, figures.threads);
    most.create_ms = std::max(most.create_ms, figures.create_ms);
    most.connect_ms = std::max(most.connect_ms, figures.connect_ms);
    most.messages_ms = std::max(most.messages_ms, figures.messages_ms);
  }
  const Figures& first = table.figures[0];
  const std::uint64_t queue_pairs = std::uint64_t{FLAGS_processes} * (FLAGS_processes - 1) * FLAGS_queue_pairs;
  std::printf("| %u | %llu | %u | %.0f ms | %.0f ms | %.0f ms | %.1f KiB | %ld | %ld | %.2f us | %.1f us | %.2f us |\n",
              FLAGS_processes, static_cast<unsigned long long>(queue_pairs / FLAGS_processes), FLAGS_depth,
              most.create_ms, most.connect_ms, most.messages_ms,
              static_cast<double>(after - before) / static_cast<double>(queue_pairs), most.descriptors, most.threads,
              first.empty_poll_us, first.dereg_mr_us, first.waiting_poll_us);
}

}  // namespace

int main(int argc, char** argv) {
  gflags::SetUsageMessage(
      "soft0_scale [--processes=N] [--queue_pairs=N]\n"
      "Connects N processes with each other on soft0, moves one message by each queue pair, and prints a row of a "
      "table:\n"
      "processes, queue pairs of each, their depth, time for creating them, for connecting them, for the messages; "
      "then\n"
      "memory for a queue pair, descriptors and threads of a process; then the medians of the time of an empty poll, "
      "of\n"
      "ibv_dereg_mr, and of a poll by a second thread while a request waits. Exit status 1: something was not as it "
      "must be.");
  gflags::ParseCommandLineFlags(&argc, &argv, true);
  if (FLAGS_processes < 2 || FLAGS_processes > 256 || FLAGS_queue_pairs < 1 || FLAGS_queue_pairs > 4096) {
    fail("--processes is 2 to 256, --queue_pairs 1 to 4096");
  }
  Table& table = make_table();
  if (!run_all(table)) return 1;
  print(table);
  return 0;
}
