// stopped_error.h - what is said when a session ends. Private to the session layer.
#pragma once

#include "rdmacomm/result.h"

namespace rdmacomm {

/// For calls that come after its end.
[[nodiscard]] inline Error stopped_error() {
  return make_error(Errc::kStopped, "the session was stopped");
}

/// For peers whose handshake it interrupts.
[[nodiscard]] inline Error being_stopped_error() {
  return make_error(Errc::kStopped, "this side is being stopped");
}

}  // namespace rdmacomm
