#include "support/listen_flag.h"

#include <gflags/gflags.h>

DEFINE_string(
    listen, "",
    "server: the address to listen at, for example 127.0.0.1 for clients of this machine only; without it: every "
    "address of this machine. Nobody is asked for a password: whoever reaches the port can connect");

namespace rdmacomm::programs {

const std::string& listen_address() {
  return FLAGS_listen;
}

Status apply_listen_flag(ConnectionFlags& flags) {
  if (FLAGS_listen.empty()) return {};
  if (flags.role == Role::kServer) {
    flags.session.address.host = FLAGS_listen;
    return {};
  }
  return make_error(Errc::kInvalidArgument,
                    "--listen=" + FLAGS_listen +
                        (flags.role == Role::kClient ? ": a client does not listen"
                                                     : ": is for --role=server; both processes are of this machine"));
}

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
