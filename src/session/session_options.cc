#include "rdmacomm/session/session_options.h"

namespace rdmacomm {
namespace {

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
  return check_count("max_endpoints", max_endpoints, 65536);
}

}  // namespace rdmacomm
