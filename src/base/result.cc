#include "rdmacomm/result.h"

#include <cstdlib>

#include "base/logging.h"

namespace rdmacomm::detail {

void die_of_misuse_of_empty(const char* handle) noexcept {
  RDMACOMM_LOG(ERROR) << "a bug in this program: an empty " << handle
                      << " was used; check whether the call that should have created it failed";
  std::abort();
}

void die_of_misuse(const char* what, const Error* failure) noexcept {
  RDMACOMM_LOG(ERROR) << "a bug in this program: " << what << (failure != nullptr ? ": " + failure->message() : "");
  std::abort();
}

}  // namespace rdmacomm::detail
