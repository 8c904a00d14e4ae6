// connection_flags.h - the flags by which every program selects its device and its peer.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "rdmacomm/adapter.h"
#include "rdmacomm/config.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"
#include "rdmacomm/session.h"
#include "support/program.h"

namespace rdmacomm::programs {

enum class Role : std::uint8_t { kServer, kClient, kBoth };

/// The values of the connection flags, checked.
struct ConnectionFlags {
  Role role = Role::kBoth;
  SessionOptions session = {};
  AdapterConfig adapter = {};  ///< traffic class, service level, P_Key and MTU; the program sets the rest
  bool keep_serving = false;
};

/// kInvalidArgument: a flag outside its range, or an unknown role; the context names the flag and its value.
[[nodiscard]] Result<ConnectionFlags> read_connection_flags();
/// The same for programs with a fixed role: a server, or a client that names its server in another way.
/// kInvalidArgument also: --role, --server, --master or --keep-serving is given.
[[nodiscard]] Result<ConnectionFlags> read_connection_flags(Role role);
/// Returns `channel` with the values of the flags for its network path.
[[nodiscard]] ChannelConfig with_flags(ChannelConfig channel, const AdapterConfig& flags);
/// The flags as groups for --help.
/// more  a flag of this program to list with them
[[nodiscard]] std::vector<Help::Group> connection_help(const std::optional<HelpFlag>& more = {});
/// Only the group of device flags.
[[nodiscard]] Help::Group device_help();

/// "soft0 port 1 (Ethernet, MTU 4096), QPN 0x000211 GID ::ffff:10.0.0.1 (RoCE v2) MTU 4096"
[[nodiscard]] std::string end_text(const std::string& device, const QpAddress& address);

}  // namespace rdmacomm::programs
