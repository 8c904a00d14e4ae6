// service_thread.h - starts the device's own threads in the application's process.
#pragma once

#include <pthread.h>
#include <signal.h>

#include <system_error>
#include <thread>
#include <utility>

namespace rdmacomm::softdev {

/// Starts a thread named `name` (at most 15 characters) that runs `body`. It blocks all signals, because signals belong
/// to the application.
/// Returns  0, or an errno value if the system allows no more threads.
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
