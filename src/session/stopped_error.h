// stopped_error.h - the errors for the end of a session. Private to the session layer.
#pragma once

#include "rdmacomm/result.h"

namespace rdmacomm {

/// For calls after the end of the session.
[[nodiscard]] inline Error stopped_error() {
  return make_error(Errc::kStopped, "the session was stopped");
}

/// For peers whose handshake the end interrupts.
[[nodiscard]] inline Error being_stopped_error() {
  return make_error(Errc::kStopped, "the session is being stopped");
}

}  // namespace rdmacomm
