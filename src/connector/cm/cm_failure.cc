#include "connector/cm/cm_failure.h"

#include "verbs/describe.h"
#include "verbs/transport.h"

namespace rdmacomm {

CmFailure failure_of(ibv_wc_status status, const ibv_context& context) {
  const Errc code = verbs::errc_of(status);
  const bool is_queue_pair = code == Errc::kLocalQueuePair && verbs::fails_with_connection(context);
  if (code == Errc::kFlushed || is_queue_pair) return {};
  return std::string(verbs::completion_advice(code)) + " (" + ibv_wc_status_str(status) + ")";
}

CmFailure failure_of(const Error& refused, const ibv_context& context) {
  if (refused.code == std::errc::not_connected && verbs::fails_with_connection(context)) return {};
  return refused.message();
}

}  // namespace rdmacomm
