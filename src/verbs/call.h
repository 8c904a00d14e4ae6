// call.h - turns the three ways in which verbs report errors into Status and Result.
// Layer: verbs. Uses: base.   The only place above base/ that reads errno.
//
//   value    0, or the error number itself     query_device(_ex), query_port, modify_qp, query_qp, destroy_*, dereg_mr,
//                                              dealloc_pd, post_send, post_recv, req_notify_cq, query_gid_entry
//   minus 1  -1 and errno                      get_cq_event, get_async_event, query_pkey, rdma_*
//   null     nullptr and errno                 open_device, alloc_pd, reg_mr, create_*, get_device_list
#pragma once

#include <cerrno>
#include <string>
#include <string_view>

#include "rdmacomm/result.h"

namespace rdmacomm::verbs {

/// An operating system's error number as a code.
[[nodiscard]] inline std::error_code os_error(int number) noexcept {
  return {number, std::generic_category()};
}

/// The error number of a verb that returns 0 or an error number. A few providers return -errno instead, or -1 with
/// errno set, contrary to the man pages.
[[nodiscard]] inline int error_number(int returned) noexcept {
  return returned == -1 ? errno : (returned < 0 ? -returned : returned);
}

/// Status of a verb that returns 0 or an error number. `what` completes "cannot ...".
[[nodiscard]] inline Status from_value(int returned, std::string_view what) {
  if (returned == 0) return {};
  return make_error(os_error(error_number(returned)), "cannot " + std::string(what));
}

/// Status of a verb that returns -1 and sets errno. `what` completes "cannot ...".
[[nodiscard]] inline Status from_minus_one(int returned, std::string_view what) {
  if (returned >= 0) return {};
  return make_error(os_error(errno), "cannot " + std::string(what));
}

/// The pointer of a verb that returns nullptr and sets errno. `what` completes "cannot ...".
template <typename T>
[[nodiscard]] Result<T*> from_null(T* returned, std::string_view what) {
  if (returned != nullptr) return returned;
  return make_error(os_error(errno), "cannot " + std::string(what));
}

}  // namespace rdmacomm::verbs
