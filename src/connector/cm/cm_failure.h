// cm_failure.h - what a stream's own request that fails says of its connection. Private to the connector layer.
#pragma once

#include <infiniband/verbs.h>

#include <optional>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

/// Why the connection has failed; empty: it has ended, and the request knows nothing of the cause. A stream's requests
/// are in order: where queue pairs fail with their connections, a failure of the queue pair is the connection's end.
using CmFailure = std::optional<std::string>;

/// Of a request that completed with `status`, which is not IBV_WC_SUCCESS.
[[nodiscard]] CmFailure failure_of(ibv_wc_status status, const ibv_context& context);
/// Of a request that could not be posted.
[[nodiscard]] CmFailure failure_of(const Error& refused, const ibv_context& context);

}  // namespace rdmacomm
