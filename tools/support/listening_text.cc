#include "support/listening_text.h"

namespace rdmacomm::programs {

std::string listening_text(const std::string& address, std::uint16_t port) {
  const std::string on_port = "listening on port " + std::to_string(port);
  if (address.empty() || address == "0.0.0.0" || address == "::") {
    return on_port +
           " at every address of this host: every client that can reach it can connect, without a password; "
           "--listen=ADDRESS limits it to one address";
  }
  return on_port + " at " + address + ": every client that can reach it can connect, without a password";
}

}  // namespace rdmacomm::programs
