// cm_refusal.h - what it means when rdma_cm does not connect. Private to the connector layer.
#pragma once

#include <string>

#include "connector/cm/cm_id.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// Nobody listens at `where`. said: by which sign that is known.
[[nodiscard]] Error nobody_listens(const std::string& where, const std::string& said);

/// Why `event` is not RDMA_CM_EVENT_ESTABLISHED: std::errc::connection_refused: nobody listens at `where`;
/// kPeerRefused, kVersionMismatch: who listens there says no; kTimeout: no answer; else the event's errno.
[[nodiscard]] Error not_connected(const CmEvent& event, const std::string& where);

}  // namespace rdmacomm
