#include "connector/cm/cm_refusal.h"

#include "connector/cm/cm_private_data.h"
#include "verbs/call.h"

namespace rdmacomm {
namespace {

constexpr int kNoListener = 8;  // "invalid service ID": InfiniBand Architecture Specification 1, 12.6.7.2

/// Either a listener refuses, or no program listens.
Error rejected(const CmEvent& event, const std::string& where) {
  if (auto reason = CmPrivateData::decode(event.private_data); reason.code() == Errc::kVersionMismatch) {
    return make_error(Errc::kVersionMismatch, where + ": " + reason.error().context);
  }
  if (event.status == kNoListener) return no_listener(where, event.to_text());
  return make_error(Errc::kPeerRefused, "refused by " + where + " (" + event.to_text() + ")");
}

/// For a failed step of connecting: whether no answer arrived. The status is -errno, or 0 or more if nothing came back.
bool is_silence(const CmEvent& event) {
  return event.type == RDMA_CM_EVENT_UNREACHABLE || event.status >= 0 || event.status == -ETIMEDOUT;
}

}  // namespace

Error no_listener(const std::string& where, const std::string& reason) {
  return make_error(std::make_error_code(std::errc::connection_refused),
                    "no server listens by rdma_cm at " + where + " (" + reason + ")");
}

Error not_connected(const CmEvent& event, const std::string& where) {
  if (event.status == -ECONNREFUSED) return no_listener(where, event.to_text());
  if (event.type == RDMA_CM_EVENT_REJECTED) return rejected(event, where);
  if (is_silence(event)) {
    return make_error(Errc::kTimeout, "no answer by rdma_cm from " + where + " (" + event.to_text() + ")");
  }
  return make_error(verbs::os_error(-event.status), "connecting to " + where + " by rdma_cm failed (" +
                                                        event.to_text() +
                                                        "); the log of that host may have the reason");
}

}  // namespace rdmacomm
