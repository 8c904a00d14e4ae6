#include "rdmacomm/session/session_hooks.h"

#include "rdmacomm/base/log.h"

namespace rdmacomm {

void SessionHooks::on_connect_failed(const std::string& peer, const Error& why) {
  const bool stranger = why.code == Errc::kBadMessage || why.code == Errc::kTimeout || why.code == Errc::kPeerLost;
  if (stranger) {
    RDMACOMM_VLOG(1) << "a connection from " << peer << " came to nothing: " << why.message();
  } else {
    RDMACOMM_LOG(WARNING) << "no endpoint for " << peer << ": " << why.message();
  }
}

}  // namespace rdmacomm
