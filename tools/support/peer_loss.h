// peer_loss.h - finds the reason for a failed operation if the peer has ended.
#pragma once

#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// Returns `failure` of an operation on `endpoint`, or the peer's end if that is the cause. When a peer dies, first
/// requests fail, and a moment later its TCP connection ends; only the connection names the peer's host and process.
/// Waits up to half a second for that. Waits up to five seconds for a request that was flushed (on iWARP also for
/// kLocalQueuePair). Such an error does not show its cause, and may come that long before the heartbeat timeout of a
/// silent peer. If the peer has not ended, adds the peer's name to `failure`. Wrong payloads (std::errc::io_error) are
/// returned unchanged.
[[nodiscard]] Status with_cause(const EndPoint& endpoint, Status failure);

/// The same for a stream, or for a job that uses one. Errors that make the local process end the stream are returned
/// unchanged: the system's errors (of files), kBadMessage and kInvalidArgument. So is an abort, which has its own
/// reason.
[[nodiscard]] Status explained(const EndPoint& endpoint, Status failure);

}  // namespace rdmacomm::programs
