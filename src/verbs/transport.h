// transport.h - properties of queue pairs that depend on the transport of their device.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>

namespace rdmacomm::verbs {

/// Whether queue pairs of `context` use TCP connections and fail when these end, whichever peer ended them (iWARP).
/// IBV_WC_LOC_QP_OP_ERR and IBV_EVENT_QP_FATAL then do not tell the cause; the connection does.
[[nodiscard]] bool fails_with_connection(const ibv_context& context) noexcept;

}  // namespace rdmacomm::verbs
