// listen_flag.h - --listen: at which of the machine's addresses a server can be reached.
#pragma once

#include <string>

#include "rdmacomm/result.h"
#include "support/connection_flags.h"

namespace rdmacomm::programs {

/// What --listen says: an address, or "" for every address of this machine.
[[nodiscard]] const std::string& listen_address();
/// The server of `flags` listens there. kInvalidArgument: it is given to a program that is no server of other machines'
/// clients: --role=client or both.
[[nodiscard]] Status apply_listen_flag(ConnectionFlags& flags);

}  // namespace rdmacomm::programs
