#include "rdmacomm/session.h"

namespace rdmacomm {
namespace {

using namespace std::chrono_literals;

Status check_count(const char* name, int value, int most) {
  if (value >= 1 && value <= most) return {};
  return make_error(Errc::kInvalidArgument,
                    std::string(name) + " is " + std::to_string(value) + "; it must be 1.." + std::to_string(most));
}

}  // namespace

Status SessionOptions::validate() const {
  if (Status status = tcp.validate(); !status) return status;
  if (Status status = device.validate(); !status) return status;
  if (Status status = check_count("handshake_slots", handshake_slots, 1024); !status) return status;
  if (Status status = check_count("handshakes_per_source", handshakes_per_source, 1024); !status) return status;
  if (Status status = check_count("waiting_handshakes", waiting_handshakes, 4096); !status) return status;
  if (handshake_patience < 1ms || handshake_patience > 1h) {
    return make_error(Errc::kInvalidArgument, "handshake_patience is " + std::to_string(handshake_patience.count()) +
                                                  " ms; it must be 1..3600000 ms");
  }
  if (Status status = check_count("max_endpoints_per_source", max_endpoints_per_source, 65536); !status) return status;
  if (silent_peer_after.count() != 0 && (silent_peer_after < 3s || silent_peer_after > 1h)) {
    return make_error(Errc::kInvalidArgument, "silent_peer_after is " + std::to_string(silent_peer_after.count()) +
                                                  " ms; it must be 3000..3600000, or 0 to wait for ever");
  }
  return check_count("max_endpoints", max_endpoints, 65536);
}

}  // namespace rdmacomm
