// connection_flags.h - the flags by which every program says which device it uses and whom it talks to.
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

/// What the connection flags say, checked.
struct ConnectionFlags {
  Role role = Role::kBoth;
  SessionOptions session = {};
  AdapterConfig adapter = {};  ///< traffic class, service level, P_Key and MTU; the rest is the program's choice
  bool keep_serving = false;
};

/// kInvalidArgument: a flag outside its range, or an unknown role; the context names the flag and its value.
[[nodiscard]] Result<ConnectionFlags> read_connection_flags();
/// The same for programs that are what they are: a server, or a client, which says elsewhere whom it talks to.
/// kInvalidArgument also: --role, --server, --master or --keep-serving is given.
[[nodiscard]] Result<ConnectionFlags> read_connection_flags(Role role);
/// A channel with what the flags say of the way.
[[nodiscard]] ChannelConfig with_flags(ChannelConfig channel, const AdapterConfig& flags);
/// How the flags are listed in --help.
/// more  a flag of the program's own that belongs to them
[[nodiscard]] std::vector<Help::Group> connection_help(const std::optional<HelpFlag>& more = {});
/// Of these, the ones about the device.
[[nodiscard]] Help::Group device_help();

/// "soft0 port 1 (Ethernet, MTU 4096), QPN 0x000211 GID ::ffff:10.0.0.1 (RoCE v2) MTU 4096"
[[nodiscard]] std::string end_text(const std::string& device, const QpAddress& address);

}  // namespace rdmacomm::programs
