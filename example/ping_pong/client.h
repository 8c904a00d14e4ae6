// client.h - the client of ping_pong_test: connects, posts every verb once, and times the ping-pong.
#pragma once

#include "channel/completion_waiter.h"
#include "ping_pong/terms.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::ping_pong {

/// Runs all steps against a server and prints the results on standard output.
/// Returns  kBeyondDeviceLimit: the size; std::errc::io_error: a payload differed from the sent one; kPeerLost; or as
///          ClientSession::connect and the operations
[[nodiscard]] Status run_client(const programs::ConnectionFlags& connection, const Terms& terms,
                                const programs::ModeFlags& modes);

}  // namespace rdmacomm::ping_pong
