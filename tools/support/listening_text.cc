#include "support/listening_text.h"

namespace rdmacomm::programs {

std::string listening_text(const std::string& address, std::uint16_t port) {
  const std::string on_port = "listening on port " + std::to_string(port);
  if (address.empty() || address == "0.0.0.0" || address == "::") {
    return on_port +
           " at every address of this machine: whoever reaches it can connect, there is no password; "
           "--listen=ADDRESS limits it to one";
  }
  return on_port + " at " + address + ": whoever reaches that can connect, there is no password";
}

}  // namespace rdmacomm::programs
