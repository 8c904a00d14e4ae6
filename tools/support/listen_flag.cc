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

}  // namespace rdmacomm::programs
