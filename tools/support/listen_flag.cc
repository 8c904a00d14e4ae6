#include "support/listen_flag.h"

#include <gflags/gflags.h>

DEFINE_string(
    listen, "",
    "server: address to listen at, for example 127.0.0.1 for clients on this host only. Without it: every address of "
    "this host. Clients need no password: every client that can reach the port can connect");

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
                        (flags.role == Role::kClient
                             ? ": a client does not listen"
                             : ": works only with --role=server; with --role=both the two processes use 127.0.0.1"));
}

}  // namespace rdmacomm::programs
