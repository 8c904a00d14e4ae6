// service_thread.h - threads that the device starts in somebody else's program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <thread>
#include <utility>

namespace rdmacomm::softdev {

/// Starts a thread of that name (at most 15 characters) that runs `body`. Signals are the application's: none is ever
/// handled on this thread.
template <typename Body>
[[nodiscard]] std::thread start_service_thread(const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  std::thread thread(std::move(body));
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  pthread_setname_np(thread.native_handle(), name);
  return thread;
}

}  // namespace rdmacomm::softdev
