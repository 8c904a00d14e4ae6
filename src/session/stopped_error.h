// stopped_error.h - the error of calls that come after the session's end. Private to the session layer.
#pragma once

#include "rdmacomm/result.h"

namespace rdmacomm {

[[nodiscard]] inline Error stopped_error() {
  return make_error(Errc::kStopped, "the session was stopped");
}

}  // namespace rdmacomm
