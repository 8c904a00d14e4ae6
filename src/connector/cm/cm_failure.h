// cm_failure.h - how a failed request of a stream shows that its connection has ended. Private to the connector layer.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// Why the connection has failed; empty: it has ended, and the request does not show the cause. A stream's requests are
/// in order. If queue pairs fail with their connections, a failure of the queue pair is the connection's end.
using CmFailure = std::optional<std::string>;

/// For a request that completed with `status`, which is not IBV_WC_SUCCESS.
[[nodiscard]] CmFailure failure_of(ibv_wc_status status, const ibv_context& context);
/// For a request that could not be posted.
[[nodiscard]] CmFailure failure_of(const Error& refused, const ibv_context& context);

}  // namespace rdmacomm
