#include "support/connection_flags.h"

#include <gflags/gflags.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <optional>

#include "support/program.h"
#include "verbs/describe.h"

DEFINE_string(role, "",
              "server, client, or both: a server process and a client process on this host. Without it: client if "
              "--server is given, otherwise both. master and slave are other words for server and client");
DEFINE_string(server, "127.0.0.1", "client: host name or address of the server");
DEFINE_string(master, "", "another name for --server");
DEFINE_int32(port, rdmacomm::kDefaultPort,
             "TCP port of the server. 0 (server only): any free port. Not used with --role=both");
DEFINE_double(
    connect_timeout, 10,
    "client: number of seconds for which it tries to connect to the server, and for which it then waits for each "
    "answer of the server");
DEFINE_double(
    silent_peer_after, 10,
    "3 to 3600: a peer that sends no heartbeat for this number of seconds counts as lost. 0: never; use it if a peer "
    "is stopped in a debugger");
DEFINE_bool(keep_serving, false, "server: serve the next client after each run, instead of ending");
DEFINE_string(
    device, "",
    "RDMA device, for example mlx5_0, rxe0, soft0. Without it: the device on the route to the server, otherwise the "
    "first device with an active port, otherwise soft0");
DEFINE_string(ib_dev, "", "another name for --device");
DEFINE_int32(ib_port, 0, "port of the device. 0: the first active port");
DEFINE_int32(gid_index, -1, "index in the port's GID table. -1: chosen by the route to the peer");
DEFINE_string(connector, "auto",
              "how the peers connect, the same at both: tcp, cm (rdma_cm), or auto: cm if the device is iWARP, "
              "otherwise tcp");
DEFINE_int32(gid_idx, -1, "another name for --gid-index");
DEFINE_string(
    gid_type, "auto",
    "auto, v1, v2 (RoCE) or ib: the only type of GID to use. auto: a type that both peers have, RoCE v2 before v1");
DEFINE_string(pkey, "",
              "P_Key of the partition, for example 0x8001. Without it: the first P_Key in the table of the port");
DEFINE_int32(traffic_class, 0, "0 to 255: DSCP and ECN bits of the packets");
DEFINE_int32(service_level, 0, "0 to 15: InfiniBand service level; on Ethernet 0 to 7, the VLAN priority");
DEFINE_int32(mtu, 4096,
             "256, 512, 1024, 2048 or 4096: largest path MTU to use. The connection uses the smaller value of the two "
             "peers");

namespace rdmacomm::programs {
namespace {

Error bad_flag(const std::string& flag, const std::string& value, const std::string& why) {
  return make_error(Errc::kInvalidArgument, "--" + flag + "=" + value + ": " + why);
}

Status check_range(const char* flag, int value, int low, int high) {
  if (value >= low && value <= high) return {};
  return bad_flag(flag, std::to_string(value), "possible are " + std::to_string(low) + " to " + std::to_string(high));
}

/// Also returns false for NaN, which gflags accepts as a double.
bool is_within(double value, double low, double high) {
  return value >= low && value <= high;
}

std::chrono::milliseconds milliseconds_of(double seconds) {
  return std::chrono::milliseconds(static_cast<std::chrono::milliseconds::rep>(seconds * 1000));
}

Result<Role> read_role() {
  if (FLAGS_role.empty()) return is_given("server") || is_given("master") ? Role::kClient : Role::kBoth;
  if (FLAGS_role == "server" || FLAGS_role == "master") return Role::kServer;
  if (FLAGS_role == "client" || FLAGS_role == "slave" || FLAGS_role == "slaver") return Role::kClient;
  if (FLAGS_role == "both") return Role::kBoth;
  return bad_flag("role", FLAGS_role, "possible are server, client and both (and master and slave)");
}

Result<std::optional<GidType>> read_gid_type() {
  if (FLAGS_gid_type == "auto") return std::optional<GidType>();
  if (FLAGS_gid_type == "v1") return std::optional(GidType::kRoceV1);
  if (FLAGS_gid_type == "v2") return std::optional(GidType::kRoceV2);
  if (FLAGS_gid_type == "ib") return std::optional(GidType::kIb);
  return bad_flag("gid-type", FLAGS_gid_type, "possible are auto, v1, v2 and ib");
}

Result<std::optional<std::uint16_t>> read_pkey() {
  if (FLAGS_pkey.empty()) return std::optional<std::uint16_t>();
  const bool is_hex = FLAGS_pkey.starts_with("0x") || FLAGS_pkey.starts_with("0X");
  const char* const first = FLAGS_pkey.data() + (is_hex ? 2 : 0);
  const char* const end = FLAGS_pkey.data() + FLAGS_pkey.size();
  std::uint16_t pkey = 0;
  const auto [read_to, failed] = std::from_chars(first, end, pkey, is_hex ? 16 : 10);
  if (failed == std::errc() && read_to == end && (pkey & 0x7fff) != 0) return std::optional(pkey);
  return bad_flag("pkey", FLAGS_pkey, "possible are 0x0001 to 0xffff, except 0x8000");
}

Status check_ranges(Role role) {
  if (!is_within(FLAGS_connect_timeout, 0.001, 3600)) {
    return bad_flag("connect-timeout", number_given(FLAGS_connect_timeout), "possible are 0.001 to 3600 seconds");
  }
  if (FLAGS_silent_peer_after != 0 && !is_within(FLAGS_silent_peer_after, 3, 3600)) {
    return bad_flag("silent-peer-after", number_given(FLAGS_silent_peer_after),
                    "possible are 3 to 3600 seconds, and 0 for no limit");
  }
  for (const Status& checked : {
           check_range("port", FLAGS_port, role == Role::kClient ? 1 : 0, 65535),
           check_range("ib-port", FLAGS_ib_port, 0, 255),
           check_range("gid-index", is_given("gid_idx") ? FLAGS_gid_idx : FLAGS_gid_index, -1, 255),
           check_range("traffic-class", FLAGS_traffic_class, 0, 255),
           check_range("service-level", FLAGS_service_level, 0, 15),
       }) {
    if (!checked.ok()) return checked;
  }
  ibv_mtu mtu{};
  if (verbs::mtu_from_bytes(static_cast<std::uint32_t>(FLAGS_mtu), mtu)) return {};
  return bad_flag("mtu", std::to_string(FLAGS_mtu), "possible are 256, 512, 1024, 2048 and 4096");
}

Result<ConnectionFlags> read_flags_of(Role role) {
  if (Status checked = check_ranges(role); !checked.ok()) return checked.error();

  const auto gid_type = read_gid_type();
  if (!gid_type) return gid_type.error();
  const auto pkey = read_pkey();
  if (!pkey) return pkey.error();
  const auto connector = connector_kind_from(FLAGS_connector);
  if (!connector) return bad_flag("connector", FLAGS_connector, "possible are auto, tcp and cm");

  ConnectionFlags flags;
  flags.role = role;
  flags.keep_serving = FLAGS_keep_serving;
  flags.session.device.name = is_given("ib_dev") ? FLAGS_ib_dev : FLAGS_device;
  flags.session.connector = *connector;
  flags.session.device.port = static_cast<std::uint8_t>(FLAGS_ib_port);
  flags.session.device.gid_index = is_given("gid_idx") ? FLAGS_gid_idx : FLAGS_gid_index;
  flags.session.device.gid_type = *gid_type;
  flags.session.tcp.connect_timeout = milliseconds_of(FLAGS_connect_timeout);
  flags.session.silent_peer_after = milliseconds_of(FLAGS_silent_peer_after);
  // --connect-timeout also limits how long the client waits for the server's answer.
  if (role != Role::kServer) flags.session.tcp.handshake_timeout = flags.session.tcp.connect_timeout;
  if (role == Role::kClient) flags.session.address.host = is_given("master") ? FLAGS_master : FLAGS_server;
  flags.session.address.port = static_cast<std::uint16_t>(FLAGS_port);
  if (role == Role::kBoth) flags.session.address = {.host = "127.0.0.1", .port = 0};
  flags.adapter.traffic_class = static_cast<std::uint8_t>(FLAGS_traffic_class);
  flags.adapter.service_level = static_cast<std::uint8_t>(FLAGS_service_level);
  flags.adapter.pkey = *pkey;
  flags.adapter.mtu_bytes = static_cast<std::uint32_t>(FLAGS_mtu);
  return flags;
}

}  // namespace

Result<ConnectionFlags> read_connection_flags() {
  const auto role = read_role();
  if (!role) return role.error();
  return read_flags_of(*role);
}

Result<ConnectionFlags> read_connection_flags(Role role) {
  for (const char* flag : {"role", "server", "master", "keep_serving"}) {
    if (!is_given(flag)) continue;
    std::string name = flag;
    std::ranges::replace(name, '_', '-');
    return make_error(Errc::kInvalidArgument, "--" + name + " is not an option of this program; see --help");
  }
  return read_flags_of(role);
}

ChannelConfig with_flags(ChannelConfig channel, const AdapterConfig& flags) {
  channel.adapter.mtu_bytes = flags.mtu_bytes;
  channel.adapter.traffic_class = flags.traffic_class;
  channel.adapter.service_level = flags.service_level;
  channel.adapter.pkey = flags.pkey;
  return channel;
}

std::vector<Help::Group> connection_help(const std::optional<HelpFlag>& more) {
  Help::Group peers{"Connection",
                    {{"role", "ROLE"},
                     {"server", "HOST"},
                     {"port", "N"},
                     {"connect_timeout", "SECONDS"},
                     {"silent_peer_after", "SECONDS"},
                     {"keep_serving", ""},
                     {"connector", "KIND"},
                     {"master", "HOST"}}};
  if (more) peers.flags.insert(peers.flags.begin() + 3, *more);
  return {std::move(peers), device_help()};
}

Help::Group device_help() {
  return {"Device",
          {{"device", "NAME"},
           {"ib_port", "N"},
           {"gid_index", "N"},
           {"gid_type", "TYPE"},
           {"pkey", "KEY"},
           {"mtu", "BYTES"},
           {"traffic_class", "N"},
           {"service_level", "N"},
           {"ib_dev", "NAME"},
           {"gid_idx", "N"}}};
}

std::string end_text(const std::string& device, const QpAddress& address) {
  return device + ", " + address.to_text();
}

}  // namespace rdmacomm::programs
