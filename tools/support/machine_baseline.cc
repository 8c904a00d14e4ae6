#include "support/machine_baseline.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <numeric>
#include <span>
#include <thread>

#include "base/system_call.h"
#include "support/cpu.h"
#include "support/statistics.h"

namespace rdmacomm::programs {
namespace {

constexpr std::chrono::milliseconds kTimeEach{2};

/// Memory pages of the same kind as the library's buffers on the software device: shared. The two copies that are
/// compared then use the same kind of pages.
class Pages {
 public:
  explicit Pages(std::size_t bytes)
      : bytes_(bytes), address_(mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0)) {
    if (address_ != MAP_FAILED) std::memset(address_, 1, bytes_);
  }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  ~Pages() {
    if (address_ != MAP_FAILED) munmap(address_, bytes_);
  }
  [[nodiscard]] bool valid() const noexcept { return address_ != MAP_FAILED; }
  [[nodiscard]] std::byte* data() const noexcept { return static_cast<std::byte*>(address_); }

 private:
  std::size_t bytes_;
  void* address_;
};

/// Prevents the compiler from removing or merging copies.
void used(void* memory) {
  asm volatile("" : : "r"(memory) : "memory");
}

double gb_per_s(std::uint64_t bytes, double ns) {
  return ns > 0 ? static_cast<double>(bytes) / ns : 0;
}

}  // namespace

/// The thread on the other CPU. It sleeps until a measurement begins. Then, for each odd number in `line_`, it reads
/// `watched_` and stores the next even number, until it sees kEnd.
class MachineBaseline::Helper {
 public:
  Helper(int cpu) : thread_([this, cpu] { run(cpu); }) {}  // NOLINT(google-explicit-constructor)
  Helper(const Helper&) = delete;
  Helper& operator=(const Helper&) = delete;
  ~Helper() {
    turn_.store(kQuit);
    turn_.notify_one();
    thread_.join();
  }

  /// Wakes the thread and waits until it spins.
  void begin(std::span<const std::byte> watched) {
    watched_ = watched;
    sequence_ = 0;
    line_.value.store(0, std::memory_order_relaxed);
    turn_.store(kSpin);
    turn_.notify_one();
    (void)bounce();
  }
  /// Sends the cache line to the other CPU and waits until it is back.
  std::uint32_t bounce() {
    const std::uint32_t ask = ++sequence_;
    line_.value.store(ask, std::memory_order_release);
    // No pause instruction, because it would add to the measured time.
    while (line_.value.load(std::memory_order_acquire) == ask) continue;
    return sequence_ = ask + 1;
  }
  /// Lets the thread sleep again.
  void end() {
    line_.value.store(kEnd, std::memory_order_release);
    turn_.wait(kSpin);
  }
  [[nodiscard]] Status pinned() {
    turn_.wait(kStarting);
    return pinned_;
  }

 private:
  enum Turn : std::uint32_t { kStarting, kSleep, kSpin, kQuit };
  static constexpr std::uint32_t kEnd = 0xffffffff;
  struct alignas(128) Line {  // 128: processors fetch lines in pairs
    std::atomic<std::uint32_t> value{0};
  };

  void run(int cpu) {
    pinned_ = pin_this_thread(cpu);
    set_turn(kSleep);
    for (;;) {
      turn_.wait(kSleep);
      if (turn_.load() == kQuit) return;
      answer();
      set_turn(kSleep);
    }
  }
  /// Changes to `next` unless the owner has asked to quit meanwhile.
  void set_turn(std::uint32_t next) {
    std::uint32_t now = turn_.load();
    while (now != kQuit && !turn_.compare_exchange_weak(now, next)) continue;
    turn_.notify_all();
  }
  void answer() {
    for (;;) {
      const std::uint32_t seen = line_.value.load(std::memory_order_acquire);
      if (seen == kEnd) return;
      if (seen % 2 == 0) continue;
      read_watched();
      line_.value.store(seen + 1, std::memory_order_release);
    }
  }
  /// One load from each cache line transfers the whole line.
  void read_watched() {
    unsigned sum = 0;
    for (std::size_t i = 0; i < watched_.size(); i += 64) sum += static_cast<unsigned>(watched_[i]);
    asm volatile("" : : "r"(sum));
  }

  Line line_;
  std::atomic<std::uint32_t> turn_{kStarting};
  std::uint32_t sequence_ = 0;
  std::span<const std::byte> watched_;
  Status pinned_;
  std::thread thread_;  // last: starts after all other members are initialized
};

MachineBaseline::MachineBaseline(const TickClock& clock, int other_cpu) : clock_(clock), other_cpu_(other_cpu) {}
MachineBaseline::~MachineBaseline() = default;

Result<std::unique_ptr<MachineBaseline>> MachineBaseline::create(const TickClock& clock, int other_cpu) {
  std::unique_ptr<MachineBaseline> baseline(new MachineBaseline(clock, other_cpu));
  if (other_cpu < 0) return baseline;
  baseline->helper_ = std::make_unique<Helper>(other_cpu);
  if (const Status pinned = baseline->helper_->pinned(); !pinned.ok()) return pinned.error();
  return baseline;
}

double MachineBaseline::measure_cache_line() {
  if (helper_ == nullptr) return 0;
  constexpr int kBatch = 200;
  std::vector<double> batches;
  helper_->begin({});
  const std::uint64_t limit = clock_.now() + clock_.ticks(kTimeEach);
  std::uint64_t before = clock_.now();
  while (before < limit) {
    for (int i = 0; i < kBatch; ++i) (void)helper_->bounce();
    const std::uint64_t after = clock_.now();
    batches.push_back(clock_.ns(after - before) / (2.0 * kBatch));
    before = after;
  }
  helper_->end();
  cache_line_ns_.push_back(median(std::move(batches)));
  return cache_line_ns_.back();
}

Result<CopyFigures> MachineBaseline::measure_copy(std::uint64_t bytes) {
  const Pages from(bytes);
  const Pages to(bytes);
  if (!from.valid() || !to.valid()) {
    return make_error(std::make_error_code(std::errc::not_enough_memory),
                      "not enough memory to measure a memcpy of " + std::to_string(bytes) + " bytes");
  }
  CopySeries& series = copies_[bytes];
  CopyFigures figures;
  figures.alone = gb_per_s(bytes, copy_alone_ns(from.data(), to.data(), bytes));
  series.alone.push_back(figures.alone);
  if (helper_ == nullptr) return figures;
  figures.read_by_other = gb_per_s(bytes, copy_read_ns(from.data(), to.data(), bytes));
  series.read_by_other.push_back(figures.read_by_other);
  return figures;
}

double MachineBaseline::copy_alone_ns(const std::byte* from, std::byte* to, std::uint64_t bytes) const {
  // Small copies are timed in batches, because reading the clock would take most of the time.
  const auto batch = static_cast<int>(std::clamp<std::uint64_t>(65536 / bytes, 1, 64));
  std::vector<double> times;
  const std::uint64_t limit = clock_.now() + clock_.ticks(kTimeEach);
  do {
    const std::uint64_t before = clock_.now();
    for (int i = 0; i < batch; ++i) {
      std::memcpy(to, from, bytes);
      used(to);
    }
    times.push_back(clock_.ns(clock_.now() - before) / batch);
  } while (clock_.now() < limit || times.size() < 3);
  return median(std::move(times));
}

double MachineBaseline::copy_read_ns(const std::byte* from, std::byte* to, std::uint64_t bytes) {
  std::vector<double> times;
  helper_->begin({to, bytes});
  const std::uint64_t limit = clock_.now() + clock_.ticks(kTimeEach);
  do {
    const std::uint64_t before = clock_.now();
    std::memcpy(to, from, bytes);
    used(to);
    times.push_back(clock_.ns(clock_.now() - before));
    (void)helper_->bounce();
  } while (clock_.now() < limit || times.size() < 3);
  helper_->end();
  return median(std::move(times));
}

double MachineBaseline::cache_line_ns() const {
  return median(cache_line_ns_);
}

CopyFigures MachineBaseline::copy(std::uint64_t bytes) const {
  const auto found = copies_.find(bytes);
  if (found == copies_.end()) return {};
  return {.alone = median(found->second.alone), .read_by_other = median(found->second.read_by_other)};
}

}  // namespace rdmacomm::programs
