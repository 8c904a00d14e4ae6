#include "softdev/faults/device_faults.h"

#include <signal.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

#include "base/unique_fd.h"
#include "softdev/faults/fault_report.h"

namespace rdmacomm::softdev {
namespace {

constexpr auto kNever = Later::Clock::time_point::min().time_since_epoch().count();

bool has(const FaultRun& run, const std::string& device, FaultAction action) {
  return std::ranges::any_of(run.rules_for(device),
                             [&](std::size_t index) { return run.plan().rules[index].action == action; });
}

/// A timer of the kernel that continues this process once.
class ContinuingTimer {
 public:
  explicit ContinuingTimer(std::chrono::nanoseconds time) noexcept {
    sigevent continues{};
    continues.sigev_notify = SIGEV_SIGNAL;
    continues.sigev_signo = SIGCONT;
    itimerspec once{};
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(time);
    once.it_value = {static_cast<time_t>(seconds.count()), (time - seconds).count()};
    exists_ = timer_create(CLOCK_MONOTONIC, &continues, &timer_) == 0;
    runs_ = exists_ && timer_settime(timer_, 0, &once, nullptr) == 0;
  }
  ContinuingTimer(const ContinuingTimer&) = delete;
  ContinuingTimer& operator=(const ContinuingTimer&) = delete;
  ~ContinuingTimer() {
    if (exists_) timer_delete(timer_);
  }
  [[nodiscard]] bool runs() const noexcept { return runs_; }

 private:
  timer_t timer_{};
  bool exists_ = false;
  bool runs_ = false;
};

/// Stops this process. Timers of the kernel continue it, because no thread of the process runs meanwhile.
void freeze_this_process(std::chrono::microseconds time) noexcept {
  using std::chrono::milliseconds;
  // A signal before the stop has no effect, and this thread may lose its core here. A periodic timer would not help:
  // since Linux 6.13 it ends with the first signal that is ignored.
  const ContinuingTimer first(time);
  const ContinuingTimer second(time + milliseconds(1));
  const ContinuingTimer third(time + milliseconds(100));
  const ContinuingTimer last(time + milliseconds(10'000));
  if (last.runs()) raise(SIGSTOP);
}

}  // namespace

DeviceFaults::DeviceFaults(std::shared_ptr<FaultRun> run, std::string name, FaultyDevice& device)
    : run_(std::move(run)),
      name_(std::move(name)),
      device_(device),
      has_link_faults_(has(*run_, name_, FaultAction::kLink)),
      reorders_(has(*run_, name_, FaultAction::kReorder)),
      link_up_at_(kNever) {}

int DeviceFaults::start() {
  if (const int error = later_.start(); error != 0) return error;
  run_->for_each_device([this](const DeviceFaults& other) {
    if (other.name_ != name_ || !other.link_is_down()) return;
    const Later::Clock::time_point up_at(Later::Clock::duration(other.link_up_at_.load()));
    link_reported_down_ = true;  // the application finds it down
    lower_link(up_at);
  });
  run_->add(*this);
  return 0;
}

void DeviceFaults::stop() {
  run_->remove(*this);
  later_.stop();
}

std::unique_ptr<QpFaults> DeviceFaults::of_next_queue_pair(FaultTransport transport) {
  return QpFaults::create(run_, {name_, transport, run_->next_queue_pair()});
}

int DeviceFaults::refusal(FaultCall call) {
  return has_failed() ? EIO : run_->refusal(call, name_);
}

bool DeviceFaults::link_is_down() const noexcept {
  const auto up_at = link_up_at_.load(std::memory_order_acquire);
  return up_at != kNever && Later::Clock::now().time_since_epoch().count() < up_at;
}

void DeviceFaults::take_link_down(std::chrono::microseconds time) {
  const Later::Clock::time_point up_at = Later::Clock::now() + time;
  run_->for_each_device([&](DeviceFaults& one) {
    if (one.name_ == name_) one.lower_link(up_at);
  });
}

void DeviceFaults::lower_link(Later::Clock::time_point up_at) {
  const auto wanted = up_at.time_since_epoch().count();
  auto known = link_up_at_.load(std::memory_order_relaxed);
  while (known < wanted && !link_up_at_.compare_exchange_weak(known, wanted, std::memory_order_acq_rel)) {
  }
  if (!link_reported_down_.exchange(true)) device_.report_port(IBV_EVENT_PORT_ERR);
  later_.run(up_at, Later::AtStop::kDrop, [this] { raise_link(); });
}

void DeviceFaults::raise_link() {
  if (link_is_down()) return;  // it was taken down again meanwhile
  if (link_reported_down_.exchange(false)) device_.report_port(IBV_EVENT_PORT_ACTIVE);
}

void DeviceFaults::fail_device() {
  run_->for_each_device([this](DeviceFaults& one) {
    if (one.name_ != name_ || one.has_failed_.exchange(true)) return;
    one.later_.run(std::chrono::microseconds(0), Later::AtStop::kDrop,
                   [&one] { one.device_.flush_and_report_failure(); });
  });
}

void DeviceFaults::overrun(const ibv_cq* queue, const ibv_qp* queue_pair) {
  static constexpr std::chrono::milliseconds kAgain{1};
  later_.run(std::chrono::microseconds(0), Later::AtStop::kDrop, [this, queue, queue_pair] {
    if (device_.overrun(queue, queue_pair)) return;
    later_.run(kAgain, Later::AtStop::kDrop, [this, queue, queue_pair] { overrun(queue, queue_pair); });
  });
}

void DeviceFaults::freeze(pid_t process, std::chrono::microseconds time) {
  if (process == getpid()) return freeze_this_process(time);
  // A descriptor, because another process may have this number when the time is over.
  const auto frozen = std::make_shared<UniqueFd>(static_cast<int>(syscall(SYS_pidfd_open, process, 0)));
  if (!*frozen || syscall(SYS_pidfd_send_signal, frozen->get(), SIGSTOP, nullptr, 0) != 0) return;
  later_.run(time, Later::AtStop::kRun,
             [frozen] { (void)syscall(SYS_pidfd_send_signal, frozen->get(), SIGCONT, nullptr, 0); });
}

void DeviceFaults::kill(pid_t process) {
  if (process == getpid()) report_faults(*run_);
  ::kill(process, SIGKILL);
}

}  // namespace rdmacomm::softdev
