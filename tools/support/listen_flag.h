// listen_flag.h - --listen: the local address at which a server can be reached.
#pragma once

#include <string>

#include "rdmacomm/result.h"
#include "support/connection_flags.h"

namespace rdmacomm::programs {

/// The value of --listen: an address, or "" for every address of this machine.
[[nodiscard]] const std::string& listen_address();
/// Makes the server of `flags` listen there. kInvalidArgument: --listen is given to a program that does not serve other
/// machines: --role=client or both.
[[nodiscard]] Status apply_listen_flag(ConnectionFlags& flags);

}  // namespace rdmacomm::programs
