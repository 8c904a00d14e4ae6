// client.h - the side of ping_pong_test that connects, posts every verb once, and times the ping-pong.
#pragma once

#include "channel/completion_waiter.h"
#include "ping_pong/terms.h"
#include "support/connection_flags.h"
#include "support/mode_flags.h"

namespace rdmacomm::ping_pong {

/// Runs everything against a server and prints what comes out on standard output.
/// Returns  kBeyondDeviceLimit: the size; std::errc::io_error: a payload did not arrive as it was sent; kPeerLost;
///          or as ClientSession::connect and the operations
[[nodiscard]] Status run_client(const programs::ConnectionFlags& connection, const Terms& terms,
                                const programs::ModeFlags& modes);

}  // namespace rdmacomm::ping_pong
