// start_thread.h - starts threads, and returns an error if the system cannot. Private to the library.
#pragma once

#include <pthread.h>

#include <array>
#include <string>
#include <system_error>
#include <thread>
#include <utility>

#include "base/out_of_memory.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The longest thread name that the system can show (prctl(2), PR_SET_NAME).
inline constexpr std::size_t kMaxThreadNameBytes = 15;

/// Starts `thread`. Fails, instead of throwing, if the system has no more threads or no more memory.
/// name  as `top -H` and debuggers show it; cut off after kMaxThreadNameBytes
template <typename Body>
[[nodiscard]] Status start_thread(std::thread& thread, const std::string& name, Body&& body) {
  std::array<char, kMaxThreadNameBytes + 1> shown{};
  name.copy(shown.data(), kMaxThreadNameBytes);
  return or_out_of_memory([&]() -> Status {
    try {
      thread = std::thread([shown, run = std::forward<Body>(body)]() mutable {
        // This comes first: until then the new thread has the name of the thread that started it.
        pthread_setname_np(pthread_self(), shown.data());  // cannot fail: the name is short enough
        run();
      });
      return {};
    } catch (const std::system_error& error) {
      return make_error(error.code(), "cannot start a thread; see `ulimit -u`");
    }
  });
}

/// Keeps `thread` on one CPU. Fails if the CPU does not exist, or if this process may not use it.
[[nodiscard]] inline Status pin_thread(std::thread& thread, int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  if (cpu >= 0 && cpu < CPU_SETSIZE) CPU_SET(static_cast<unsigned>(cpu), &set);
  const int failed = pthread_setaffinity_np(thread.native_handle(), sizeof(set), &set);
  if (failed == 0) return {};
  return make_error({failed, std::generic_category()}, "cannot run a thread on CPU " + std::to_string(cpu) +
                                                           ": `taskset -p $$` shows which CPUs this process may use");
}

}  // namespace rdmacomm
