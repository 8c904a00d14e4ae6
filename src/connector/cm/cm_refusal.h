// cm_refusal.h - the errors for connections that rdma_cm does not establish. Private to the connector layer.
#pragma once

#include <string>

#include "connector/cm/cm_id.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The error "no server listens by rdma_cm at `where`". reason - the evidence for it.
[[nodiscard]] Error no_listener(const std::string& where, const std::string& reason);

/// The error for an `event` other than RDMA_CM_EVENT_ESTABLISHED: std::errc::connection_refused: no program listens at
/// `where`; kPeerRefused, kVersionMismatch: the listener refuses; kTimeout: no answer; else the event's errno.
[[nodiscard]] Error not_connected(const CmEvent& event, const std::string& where);

}  // namespace rdmacomm
