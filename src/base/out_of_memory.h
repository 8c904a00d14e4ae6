// out_of_memory.h - std::bad_alloc as an error, where a peer can cause it. Private to the library.
#pragma once

#include <new>
#include <system_error>
#include <type_traits>
#include <utility>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// The Error that `make` returns. An Error of the same code without words if the memory for them is missing.
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

/// What `call` returns (a Status or a Result), or std::errc::not_enough_memory if it throws std::bad_alloc. Everything
/// that `call` had taken is released by then. For the roots of a thread's work, and for public functions.
template <typename Call>
[[nodiscard]] auto or_out_of_memory(Call&& call) -> std::invoke_result_t<Call> {
  try {
    return std::forward<Call>(call)();
  } catch (const std::bad_alloc&) {
    return out_of_memory();
  }
}

}  // namespace rdmacomm
