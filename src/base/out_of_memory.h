// out_of_memory.h - std::bad_alloc as an error, in code that a peer can make run out of memory. Private to the library.
#pragma once

#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// Returns the Error that `make` returns. If the memory for its text is missing, returns an Error with `code` and no
/// text.
template <typename Make>
[[nodiscard]] Error worded_if_possible(std::error_code code, Make&& make) noexcept {
  try {
    return std::forward<Make>(make)();
  } catch (const std::bad_alloc&) {
    return Error{.code = code, .context = {}};
  }
}

[[nodiscard]] inline Error out_of_memory() noexcept {
  const auto code = std::make_error_code(std::errc::not_enough_memory);
  return worded_if_possible(code, [&] {
    return make_error(code, "this process has no more memory; see `ulimit -v` and the limit of its control group");
  });
}

/// Returns the Status or Result of `call`, or std::errc::not_enough_memory if it throws std::bad_alloc. Everything that
/// `call` had taken is released by then. For the top-level function of a thread, and for public functions.
template <typename Call>
[[nodiscard]] auto or_out_of_memory(Call&& call) -> std::invoke_result_t<Call> {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

}  // namespace rdmacomm
