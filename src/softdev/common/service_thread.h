// service_thread.h - threads that the device starts in somebody else's program.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace rdmacomm::softdev {

/// Starts a thread of that name (at most 15 characters) that runs `body`. Signals are the application's: none is ever
/// handled on this thread. 0, or an errno value: no more threads.
template <typename Body>
[[nodiscard]] int start_service_thread(std::thread& thread, const char* name, Body body) {
  sigset_t all;
  sigset_t before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = 0;
  try {
    thread = std::thread(std::move(body));
    pthread_setname_np(thread.native_handle(), name);
  } catch (const std::system_error& refused) {
    error = refused.code().value();
  }
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
  return error;
}

}  // namespace rdmacomm::softdev
