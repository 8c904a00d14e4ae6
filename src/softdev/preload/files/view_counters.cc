#include "softdev/preload/files/view_counters.h"

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdint>
#include <iterator>

#include "softdev/host/gid_table.h"
#include "softdev/host/traffic_file.h"
#include "softdev/preload/files/view_path.h"

namespace rdmacomm::softdev::preload {
namespace {

/// The counts of one port.
struct PortTraffic {
  Counts counts{};
  std::uint64_t link_downed = 0;
  [[nodiscard]] std::uint64_t of(Count kind) const noexcept { return counts[static_cast<std::size_t>(kind)]; }
  /// The numbers are read one after the other, so a part may be larger than the whole for a moment.
  [[nodiscard]] std::uint64_t without(Count whole, Count part) const noexcept {
    return of(whole) - std::min(of(whole), of(part));
  }
};

constexpr std::uint64_t kWord = 4;  // port_xmit_data and port_rcv_data count in words of 4 bytes

/// Source of the names: drivers/infiniband/core/sysfs.c of Linux.
constexpr std::string_view kPortCounters[] = {
    "VL15_dropped",
    "excessive_buffer_overrun_errors",
    "link_downed",
    "link_error_recovery",
    "local_link_integrity_errors",
    "multicast_rcv_packets",
    "multicast_xmit_packets",
    "port_rcv_constraint_errors",
    "port_rcv_data",
    "port_rcv_errors",
    "port_rcv_packets",
    "port_rcv_remote_physical_errors",
    "port_rcv_switch_relay_errors",
    "port_xmit_constraint_errors",
    "port_xmit_data",
    "port_xmit_discards",
    "port_xmit_packets",
    "port_xmit_wait",
    "symbol_error",
    "unicast_rcv_packets",
    "unicast_xmit_packets",
};

/// Source of the names: drivers/infiniband/sw/rxe/rxe_hw_counters.c of Linux.
constexpr std::string_view kHardwareCounters[] = {
    "ack_deferred",
    "completer_retry_err",
    "duplicate_request",
    "link_downed",
    "out_of_seq_request",
    "rcvd_pkts",
    "rcvd_rnr_err",
    "rcvd_seq_err",
    "rdma_recvs",
    "rdma_sends",
    "retry_exceeded_err",
    "send_err",
    "retry_rnr_exceeded_err",
    "send_rnr_err",
    "sent_pkts",
};

std::uint64_t port_value(std::string_view name, const PortTraffic& port) noexcept {
  if (name == "link_downed") return port.link_downed;
  if (name == "multicast_rcv_packets") return port.of(Count::kGroupPacketsReceived);
  if (name == "multicast_xmit_packets") return port.of(Count::kGroupPacketsSent);
  if (name == "port_rcv_data") return port.of(Count::kReceivedBytes) / kWord;
  if (name == "port_rcv_packets") return port.of(Count::kReceivedPackets);
  if (name == "port_xmit_data") return port.of(Count::kSentBytes) / kWord;
  if (name == "port_xmit_discards") return port.of(Count::kDiscarded);
  if (name == "port_xmit_packets") return port.of(Count::kSentPackets);
  if (name == "unicast_rcv_packets") return port.without(Count::kReceivedPackets, Count::kGroupPacketsReceived);
  if (name == "unicast_xmit_packets") return port.without(Count::kSentPackets, Count::kGroupPacketsSent);
  return 0;  // soft0 has no link on which such an error could happen
}

std::uint64_t hardware_value(std::string_view name, const PortTraffic& port) noexcept {
  if (name == "completer_retry_err") return port.of(Count::kRetries);
  if (name == "link_downed") return port.link_downed;
  if (name == "rcvd_pkts") return port.of(Count::kReceivedPackets);
  if (name == "rcvd_rnr_err") return port.of(Count::kNotReadyReceived);
  if (name == "rdma_recvs") return port.of(Count::kReceives);
  if (name == "rdma_sends") return port.of(Count::kSends);
  if (name == "retry_exceeded_err") return port.of(Count::kRetriesExceeded);
  if (name == "retry_rnr_exceeded_err") return port.of(Count::kNotReadyExceeded);
  if (name == "send_rnr_err") return port.of(Count::kNotReadySent);
  if (name == "sent_pkts") return port.of(Count::kSentPackets);
  return 0;  // no message is lost, late or out of order
}

bool has(std::span<const std::string_view> names, std::string_view name) noexcept {
  return std::ranges::find(names, name) != names.end();
}

/// Takes the part before the next slash off `path`.
std::string_view take_part(std::string_view& path) noexcept {
  const std::string_view part = path.substr(0, path.find('/'));
  path.remove_prefix(std::min(part.size() + 1, path.size()));
  return part;
}

}  // namespace

std::span<const std::string_view> port_counters() noexcept {
  return kPortCounters;
}

std::span<const std::string_view> hardware_counters() noexcept {
  return kHardwareCounters;
}

bool names_counter(std::string_view path) noexcept {
  const std::size_t slash = path.rfind('/');
  const std::string_view name = slash == std::string_view::npos ? path : path.substr(slash + 1);
  return has(kPortCounters, name) || has(kHardwareCounters, name);
}

std::optional<std::string> counter_text(std::string_view name, std::span<const DeviceIdentity> devices) {
  if (!name.starts_with(kDevices) || !names_counter(name)) return std::nullopt;
  name.remove_prefix(kDevices.size());
  (void)take_part(name);
  const auto device = std::ranges::find(devices, take_part(name), &DeviceIdentity::name);
  if (device == devices.end() || take_part(name) != "ports") return std::nullopt;
  // Queue pairs count for their device, so all of its ports have the same numbers.
  const std::string_view number = take_part(name);
  if (number.size() != 1 || !device->has_port(static_cast<std::uint32_t>(number[0] - '0'))) return std::nullopt;
  const std::string_view folder = take_part(name);
  const bool is_port = folder == "counters" && has(kPortCounters, name);
  if (!is_port && !(folder == "hw_counters" && has(kHardwareCounters, name))) return std::nullopt;
  HostTraffic traffic;
  PortTraffic port;
  const int error = read_traffic(device_guid(0), traffic);
  if (error != 0 && error != ENOENT) return std::nullopt;
  if (error == 0) port = {traffic.devices.at(device->index), traffic.link_downed};
  if (!device->interface.empty()) port.link_downed = port.of(Count::kLinkDowned);
  return std::to_string(is_port ? port_value(name, port) : hardware_value(name, port)) + "\n";
}

}  // namespace rdmacomm::softdev::preload
