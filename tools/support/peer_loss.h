// peer_loss.h - why an operation failed, where the reason is that the peer has ended.
#pragma once

#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"

namespace rdmacomm::programs {

/// `failure` of an operation on `endpoint`, or, where the peer's end turns out to be its cause, that: a dead peer shows
/// first by requests that fail, a moment later by its TCP connection, and only that names its host and process. Waits
/// up to half a second for it, and up to five for a request that was flushed (on iWARP also for kLocalQueuePair), which
/// says nothing of the cause: so long a device may be ahead of the signs of life that a silent peer is known by. A
/// failure that has no such cause gets the peer's name. Payloads that are wrong (std::errc::io_error) have none.
[[nodiscard]] Status with_cause(const EndPoint& endpoint, Status failure);

/// The same of a stream, or of a job that is done by one. Reasons for which this side ends it, and the peer after that,
/// are returned as they are: the system's errors (of files), kBadMessage and kInvalidArgument; and so is an abort,
/// which has its own.
[[nodiscard]] Status explained(const EndPoint& endpoint, Status failure);

}  // namespace rdmacomm::programs
