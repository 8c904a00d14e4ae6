// peer_loss.h - why an operation failed, where the reason is that the peer has ended.
#pragma once

#include "rdmacomm/base/result.h"
#include "rdmacomm/endpoint/endpoint.h"

namespace rdmacomm::programs {

/// `failure` of an operation on `endpoint`, or, where the peer's end turns out to be its cause, that: a dead peer shows
/// first by requests that fail, a moment later by its TCP connection, and only that names its host and process. Waits
/// up to half a second for it. Payloads that are wrong (std::errc::io_error) have no such cause.
[[nodiscard]] Status with_cause(const EndPoint& endpoint, Status failure);

}  // namespace rdmacomm::programs
