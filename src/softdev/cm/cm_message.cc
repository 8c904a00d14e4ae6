#include "softdev/cm/cm_message.h"

#include <sys/socket.h>

#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::uint32_t kMaxNumber = 0xffffff;  // queue pair numbers and packet sequence numbers have 24 bits

bool addresses_are_valid(const CmMessage& message) noexcept {
  const bool both_ipv4 = verbs::is_mapped_ipv4(message.source) && verbs::is_mapped_ipv4(message.target);
  const bool neither_ipv4 = !verbs::is_mapped_ipv4(message.source) && !verbs::is_mapped_ipv4(message.target);
  switch (message.family) {
    case AF_INET: return both_ipv4;
    case AF_INET6: return neither_ipv4 && !verbs::is_empty(message.source) && !verbs::is_empty(message.target);
    case AF_IB: return (both_ipv4 || neither_ipv4) && !verbs::is_empty(message.source);
    default: return false;
  }
}

}  // namespace

bool is_request(const CmMessage& message) noexcept {
  return message.kind == CmKind::kConnect || message.kind == CmKind::kLookUp;
}

CmMessage no_listener(const CmMessage& request) noexcept {
  CmMessage answer;
  const bool is_look_up = request.kind == CmKind::kLookUp;
  answer.kind = is_look_up ? CmKind::kFound : CmKind::kReject;
  answer.status = is_look_up ? static_cast<std::uint8_t>(CmLookUpStatus::kUnsupported)
                             : static_cast<std::uint8_t>(CmReason::kNoListener);
  return answer;
}

bool is_valid(const CmMessage& message) noexcept {
  if (message.magic != kCmMagic || message.version != kCmVersion) return false;
  if (message.kind < CmKind::kConnect || message.kind > CmKind::kFound) return false;
  if (message.qpn > kMaxNumber || message.psn > kMaxNumber) return false;
  if (message.kind == CmKind::kReject && message.status == 0) return false;
  if (message.kind == CmKind::kFound && message.status > static_cast<std::uint8_t>(CmLookUpStatus::kRejected))
    return false;
  if (message.retry_count > 7 || message.rnr_retry_count > 7 || message.ack_timeout > 31) return false;
  return !is_request(message) || addresses_are_valid(message);
}

}  // namespace rdmacomm::softdev
