#include "softdev/check/fault_handler.h"

#include <atomic>
#include <cerrno>
#include <csignal>

#include "softdev/check/inside.h"
#include "softdev/check/next.h"
#include "softdev/check/options.h"

namespace rdmacomm::softdev::check {
namespace {

std::atomic<HandleFault> handler{nullptr};
/// The program's. Written while no other thread changes it, as with sigaction() itself.
struct sigaction of_program {};

using Sigaction = int(int, const struct sigaction*, struct sigaction*);

Sigaction& next_sigaction() {
  static auto* const behind = next<Sigaction>("sigaction");
  return *behind;
}

void call_the_program(int signal, siginfo_t* info, void* machine) {
  if ((of_program.sa_flags & SA_SIGINFO) != 0) {
    of_program.sa_sigaction(signal, info, machine);
  } else if (of_program.sa_handler != SIG_DFL && of_program.sa_handler != SIG_IGN) {
    of_program.sa_handler(signal);
  } else {
    // The same instruction faults again, and the signal then ends the process.
    struct sigaction usual {};
    usual.sa_handler = SIG_DFL;
    next_sigaction()(SIGSEGV, &usual, nullptr);
  }
}

void on_fault(int signal, siginfo_t* info, void* machine) {
  const int error = errno;
  const bool is_of_kernel = info->si_code == SEGV_ACCERR || info->si_code == SEGV_MAPERR;
  const HandleFault handle = handler.load(std::memory_order_acquire);
  const bool is_handled = is_of_kernel && handle(reinterpret_cast<std::uint64_t>(info->si_addr));
  errno = error;
  if (!is_handled) call_the_program(signal, info, machine);
}

}  // namespace

void install_fault_handler(HandleFault handle) {
  if (handler.load(std::memory_order_relaxed) != nullptr) return;
  handler.store(handle, std::memory_order_release);
  struct sigaction own {};
  own.sa_sigaction = on_fault;
  own.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  sigemptyset(&own.sa_mask);
  next_sigaction()(SIGSEGV, &own, &of_program);
}

}  // namespace rdmacomm::softdev::check

namespace check = rdmacomm::softdev::check;

namespace {

/// A signal that an access to a closed page causes must not be blocked: the kernel would end the process.
template <typename SetMask>
int keep_faults_open(SetMask* behind, int how, const sigset_t* set, sigset_t* old) {
  if (set == nullptr || how == SIG_UNBLOCK || !check::options().pages) return behind(how, set, old);
  sigset_t open = *set;
  sigdelset(&open, SIGSEGV);
  return behind(how, &open, old);
}

}  // namespace

RDMACOMM_CHECKS int pthread_sigmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  RDMACOMM_BEHIND(pthread_sigmask);
  return keep_faults_open(behind, how, set, old);
}

RDMACOMM_CHECKS int sigprocmask(int how, const sigset_t* set, sigset_t* old) noexcept {
  RDMACOMM_BEHIND(sigprocmask);
  return keep_faults_open(behind, how, set, old);
}

RDMACOMM_CHECKS int sigaction(int signal, const struct sigaction* action, struct sigaction* old) noexcept {
  if (signal != SIGSEGV || check::handler.load(std::memory_order_acquire) == nullptr)
    return check::next_sigaction()(signal, action, old);
  const struct sigaction before = check::of_program;
  if (action != nullptr) check::of_program = *action;
  if (old != nullptr) *old = before;
  return 0;
}

RDMACOMM_CHECKS sighandler_t signal(int number, sighandler_t handle) noexcept {
  if (number != SIGSEGV || check::handler.load(std::memory_order_acquire) == nullptr) {
    RDMACOMM_BEHIND(signal);
    return behind(number, handle);
  }
  const sighandler_t before = check::of_program.sa_handler;
  check::of_program = {};
  check::of_program.sa_handler = handle;
  return before;
}
