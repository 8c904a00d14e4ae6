// event_element.h - the object that an asynchronous event belongs to.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rdmacomm::verbs {

/// The member of ibv_async_event::element that is valid.
enum class EventElement : std::uint8_t {
  kOther,  ///< a port or a device, which need no acknowledgement, or an object that this library does not know
  kCq,
  kQp,
  kSrq,
};

/// Source: ibv_get_async_event(3).
[[nodiscard]] constexpr EventElement element_of(ibv_event_type type) noexcept {
  switch (type) {
    case IBV_EVENT_CQ_ERR: return EventElement::kCq;
    case IBV_EVENT_SRQ_ERR:
    case IBV_EVENT_SRQ_LIMIT_REACHED: return EventElement::kSrq;
    case IBV_EVENT_QP_FATAL:
    case IBV_EVENT_QP_REQ_ERR:
    case IBV_EVENT_QP_ACCESS_ERR:
    case IBV_EVENT_COMM_EST:
    case IBV_EVENT_SQ_DRAINED:
    case IBV_EVENT_PATH_MIG:
    case IBV_EVENT_PATH_MIG_ERR:
    case IBV_EVENT_QP_LAST_WQE_REACHED: return EventElement::kQp;
    default: return EventElement::kOther;
  }
}

}  // namespace rdmacomm::verbs
