// start_thread.h - starting threads, with an error where the system has no more of them. Private to the library.
#pragma once

#include <system_error>
#include <thread>
#include <utility>

#include "rdmacomm/base/result.h"

namespace rdmacomm {

/// Starts `thread`. Fails, instead of throwing, where the system has no more threads.
template <typename Body>
[[nodiscard]] Status start_thread(std::thread& thread, Body&& body) {
  try {
    thread = std::thread(std::forward<Body>(body));
  } catch (const std::system_error& error) {
    return make_error(error.code(), "cannot start a thread; see `ulimit -u`");
  }
  return {};
}

}  // namespace rdmacomm
