// transport.h - what the transport of a device means for its queue pairs.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>

namespace rdmacomm::verbs {

/// Whether queue pairs of `context` live on TCP connections and fail with them, whoever ended those (iWARP).
/// IBV_WC_LOC_QP_OP_ERR and IBV_EVENT_QP_FATAL then say nothing of the cause; the connection does.
[[nodiscard]] bool fails_with_connection(const ibv_context& context) noexcept;

}  // namespace rdmacomm::verbs
