#include "rdmacomm/errc.h"

#include <string>

namespace rdmacomm {
namespace {

const char* sentence(Errc e) {
  switch (e) {
    case Errc::kOk: return "success";
    case Errc::kInvalidArgument: return "invalid argument";
    case Errc::kBeyondDeviceLimit: return "beyond the device's limit";
    case Errc::kLockedMemoryLimit: return "beyond the locked-memory limit";
    case Errc::kNoDevice: return "no such RDMA device";
    case Errc::kNoActivePort: return "no active port";
    case Errc::kNoUsableGid: return "no usable GID";
    case Errc::kWrongState: return "not possible in this state";
    case Errc::kNotSupported: return "not supported";
    case Errc::kSendQueueFull: return "send queue full";
    case Errc::kReceiveQueueFull: return "receive queue full";
    case Errc::kNotConnected: return "queue pair not connected";
    case Errc::kCompletionQueueFull: return "completion queue full";
    case Errc::kLocalLength: return "local length error";
    case Errc::kLocalProtection: return "local protection error";
    case Errc::kLocalQueuePair: return "local queue pair operation error";
    case Errc::kRemoteAccess: return "remote access error";
    case Errc::kRemoteInvalidRequest: return "remote invalid request error";
    case Errc::kRemoteOperation: return "remote operation error";
    case Errc::kRnrRetryExceeded: return "receiver not ready: retries exceeded";
    case Errc::kRetryExceeded: return "transport retries exceeded";
    case Errc::kFlushed: return "flushed";
    case Errc::kCompletionFailed: return "completion failed";
    case Errc::kDeviceLost: return "RDMA device lost";
    case Errc::kTimeout: return "timed out";
    case Errc::kPeerLost: return "peer lost";
    case Errc::kPeerClosed: return "peer closed the connection";
    case Errc::kPeerRefused: return "refused by the peer";
    case Errc::kVersionMismatch: return "version mismatch";
    case Errc::kBadMessage: return "bad message";
    case Errc::kIncompatiblePeer: return "incompatible peer";
    case Errc::kStopped: return "stopped";
    case Errc::kPoolExhausted: return "buffer pool exhausted";
    case Errc::kAborted: return "aborted";
    case Errc::kHookFailed: return "a hook failed";
    case Errc::kServerBusy: return "server busy";
  }
  return "unknown rdmacomm error";
}

class Category final : public std::error_category {
 public:
  [[nodiscard]] const char* name() const noexcept override { return "rdmacomm"; }
  [[nodiscard]] std::string message(int value) const override { return sentence(static_cast<Errc>(value)); }
};

}  // namespace

const std::error_category& errc_category() noexcept {
  static const Category category;
  return category;
}

}  // namespace rdmacomm
