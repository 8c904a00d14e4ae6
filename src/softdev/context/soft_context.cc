#include "softdev/context/soft_context.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <string>
#include <string_view>

#include "softdev/faults/fault_report.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {

namespace {

/// In a process with several threads, the kernel first waits for all processors, some 10 ms. So registers while the
/// process has one thread.
[[gnu::constructor]] void register_early() noexcept {
  (void)register_for_membarrier();
}

}  // namespace

SoftContext::SoftContext(std::shared_ptr<SoftDevice> device, Settings settings, SetVerbs set_verbs)
    : verbs_context{},
      device_(std::move(device)),
      settings_(std::move(settings)),
      faults_(settings_.faults == nullptr ? nullptr
                                          : std::make_unique<DeviceFaults>(settings_.faults, device_->identity().name,
                                                                           static_cast<FaultyDevice&>(*this))),
      traffic_(device_->identity().index) {
  sz = sizeof(verbs_context);
  context.device = device_.get();
  context.cmd_fd = segment_.fd();
  context.num_comp_vectors = 1;
  set_verbs(*this);
  pthread_mutex_init(&context.mutex, nullptr);
  // The inline functions of verbs.h take this value as the sign that a verbs_context surrounds the ibv_context.
  context.abi_compat = reinterpret_cast<void*>(UINTPTR_MAX);
}

SoftContext* SoftContext::open(std::shared_ptr<SoftDevice> device, SetVerbs set_verbs) {
  Settings settings;
  if (const int error = read_settings(settings); error != 0) {
    errno = error;
    return nullptr;
  }
  if (settings.faults != nullptr) {
    if (!is_fault_run_set()) announce_faults(settings.faults);
    if (const int error = settings.faults->refusal(FaultCall::kOpenDevice, device->identity().name); error != 0) {
      errno = error;
      return nullptr;
    }
  }
  std::unique_ptr<SoftContext> context(new SoftContext(std::move(device), std::move(settings), set_verbs));
  if (const int error = context->events_.open(); error != 0) {
    errno = error;
    return nullptr;
  }
  context->verbs()->async_fd = context->events_.fd();
  // Without netlink (a sandbox may refuse it), or without another thread, no events of the port are reported.
  // Everything else works.
  (void)context->port_.start(context->identity(), [soft = context.get()] { soft->follow_port(); });
  if (!context->registrations_.create()) return nullptr;
  if (const int error = context->faults_ == nullptr ? 0 : context->faults_->start(); error != 0) {
    errno = error;
    return nullptr;
  }
  return context.release();
}

SoftContext::~SoftContext() {
  if (faults_ != nullptr) faults_->stop();
  port_.stop();
  tcp_.stop();
  retrier_.stop();
  server_.stop();
}

bool SoftContext::overrun(const ibv_cq* queue, const ibv_qp* queue_pair) noexcept {
  bool is_done = true;  // also if the queue was destroyed since
  completion_queues_.for_each([&](SoftCq& one) {
    if (one.verbs() == queue) is_done = one.overrun_if_polled(queue_pair);
  });
  return is_done;
}

void SoftContext::flush_and_report_failure() noexcept {
  for (const auto& qp : queue_pairs_.all()) qp->enter_error();
  // Like a driver that removes its device: the application finds all completions when it reads the event.
  port_.report_device_failure();
}

SoftContext& SoftContext::from(ibv_context* context) noexcept {
  auto* const around = reinterpret_cast<std::byte*>(context) - offsetof(verbs_context, context);
  return static_cast<SoftContext&>(*reinterpret_cast<verbs_context*>(around));
}

bool SoftContext::is(const ibv_context* context) noexcept {
  return SoftDevice::is(context->device);
}

bool SoftContext::is_command_fd(int fd) noexcept {
  constexpr std::string_view kName = "/memfd:soft0-control";
  std::array<char, kName.size()> target{};
  const std::string link = "/proc/self/fd/" + std::to_string(fd);
  const ssize_t length = readlink(link.c_str(), target.data(), target.size());
  return length == static_cast<ssize_t>(kName.size()) && std::string_view(target.data(), target.size()) == kName;
}

int SoftContext::next_event(ibv_async_event& event) {
  for (;;) {
    port_.look();
    follow_port();  // the application may rely on the event
    if (events_.take(event)) return 0;
    if (events_.wait() != 0) return -1;
  }
}

/// Lets all queue pairs stop or continue with the port, for a device that belongs to an interface. A queue pair that is
/// connected meanwhile looks at the port itself.
void SoftContext::follow_port() {
  const std::scoped_lock lock(follow_mutex_);
  while (followed_changes_ != port_.changes()) {
    followed_changes_ = port_.changes();
    const bool up = port_.is_up();
    for (const auto& qp : queue_pairs_.all()) qp->set_port_up(up);
  }
}

bool SoftContext::wait_until_idle() {
  await_visibility();  // once for all queue pairs: it is a system call that interrupts all processors
  const auto deadline = SoftQp::Clock::now() + kLongestRequest;
  std::vector<std::shared_ptr<InitiatorTarget>> targets;
  for (const auto& qp : queue_pairs_.all()) targets.push_back(qp->as_initiator_target());
  for (auto& target : stragglers_.targets()) {  // includes destroyed queue pairs; no duplicates
    if (std::ranges::find(targets, target) == targets.end()) targets.push_back(std::move(target));
  }
  bool idle = true;
  for (const auto& target : targets) idle = target->wait_until_seen_idle(deadline) && idle;
  server_.wait_for_access();
  return idle;
}

bool SoftContext::wait_for_initiators() {
  await_visibility();
  const auto deadline = SoftQp::Clock::now() + kLongestRequest;
  bool idle = true;
  for (const auto& qp : queue_pairs_.all()) idle = qp->initiators().wait_seen(deadline) && idle;
  return idle;
}

void SoftContext::give_back(SharedFile& file, SharedBlock block, std::uint64_t made_at) {
  stragglers_.defer(made_at, [&file, range = SharedFile::unmap(std::move(block))] { file.free(range); });
}

void* SoftContext::allocate_memory(std::size_t length, bool huge_pages) {
  stragglers_.sweep();
  return memory_.allocate(length, huge_pages, stragglers_.moment());
}

void SoftContext::free_memory(void* address) {
  SharedMemory::Allocation taken;
  if (memory_.take(address, taken)) give_back(memory_.file(taken.arena), std::move(taken.block), taken.made_at);
}

}  // namespace rdmacomm::softdev
