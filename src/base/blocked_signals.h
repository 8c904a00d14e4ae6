// blocked_signals.h - keeps the program's signal handlers away while a lock is held that they might need.
// Layer: base.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <initializer_list>

namespace rdmacomm {

/// From now on, no signal handler interrupts this thread. Faults of the thread itself are still reported.
/// Returns  the signals that were blocked before, for SIG_SETMASK.
inline sigset_t block_signals() noexcept {
  sigset_t blocked;
  sigset_t before;
  sigfillset(&blocked);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGTRAP, SIGSYS, SIGABRT}) sigdelset(&blocked, fault);
  pthread_sigmask(SIG_BLOCK, &blocked, &before);
  return before;
}

/// The same, as long as the object exists.
class BlockedSignals {
 public:
  BlockedSignals() noexcept : before_(block_signals()) {}
  BlockedSignals(const BlockedSignals&) = delete;
  BlockedSignals& operator=(const BlockedSignals&) = delete;
  ~BlockedSignals() { pthread_sigmask(SIG_SETMASK, &before_, nullptr); }

 private:
  const sigset_t before_;
};

}  // namespace rdmacomm
