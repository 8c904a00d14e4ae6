#include "softdev/local/misconnection.h"

#include "softdev/local/link_terms.h"
#include "verbs/describe.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

std::string path_text(const LinkTerms& terms) {
  if (terms.source_lid != 0) {
    return "LID " + std::to_string(terms.source_lid) + " to LID " + std::to_string(terms.target_lid);
  }
  return verbs::to_text(terms.source) + " to " + verbs::to_text(terms.target);
}

bool have_equal_addresses(const LinkTerms& a, const LinkTerms& b) {
  return verbs::equal(a.source, b.source) && verbs::equal(a.target, b.target) && a.source_lid == b.source_lid &&
         a.target_lid == b.target_lid;
}

std::string type_text(std::uint32_t gid_type) {
  return gid_type == IBV_GID_TYPE_ROCE_V1 ? "RoCE v1" : "RoCE v2";
}

}  // namespace

std::string why_refused(const QpShared& target, const LinkTerms& own) {
  if (target.link.load(std::memory_order_acquire) == 0) return "it is not in the state RTR or RTS, or its port is down";
  const LinkTerms expected = published_terms(target);
  if (expected.peer_qpn != own.peer_qpn) {
    return "it is connected to queue pair " + std::to_string(expected.peer_qpn);
  }
  if (!have_equal_addresses(expected, own)) {
    return "it expects packets from " + path_text(expected) + ", and these go from " + path_text(own);
  }
  if (expected.gid_type != own.gid_type) {
    return "it uses " + type_text(expected.gid_type) + ", and this one " + type_text(own.gid_type);
  }
  if (expected.psn != own.psn) {
    return "it expects PSN " + std::to_string(expected.psn) + " first (rq_psn), and this one begins with PSN " +
           std::to_string(own.psn) + " (sq_psn)";
  }
  return "one of the two has been in RESET since they were connected; connect both again";
}

}  // namespace rdmacomm::softdev
