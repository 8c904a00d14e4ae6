#include "device/device_scan.h"

#include <algorithm>
#include <system_error>

#include "softdev/common/api.h"
#include "softdev/context/settings.h"
#include "verbs/call.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

constexpr int kMaxGids = 256;  // ibv_global_route::sgid_index has 8 bits

Result<PortFacts> read_port(const verbs::Api& api, ibv_context* context, std::uint8_t number) {
  const std::string device = context->device->name;
  ibv_port_attr attributes{};
  const int returned = api.query_port(context, number, &attributes);
  const std::string what = "query port " + std::to_string(number) + " of " + device;
  if (Status status = verbs::from_value(returned, what); !status.ok()) return status.error();
  PortFacts facts{.device = device, .number = number, .state = attributes.state};
  facts.transport = transport_of(api, *context, attributes);
  if (attributes.state == IBV_PORT_ACTIVE) facts.gids = read_gids(api, context, number, attributes);
  return facts;
}

Status read_device(ScannedDevice& device) {
  ibv_device_attr attributes{};
  const int returned = device.api->query_device(device.context.get(), &attributes);
  if (Status status = verbs::from_value(returned, "query " + device.facts.name); !status.ok()) return status;
  for (int number = 1; number <= attributes.phys_port_cnt; ++number) {
    auto port = read_port(*device.api, device.context.get(), static_cast<std::uint8_t>(number));
    if (!port) return port.status();
    device.facts.ports.push_back(std::move(*port));
  }
  return {};
}

Status open_and_read(ScannedDevice& device, ibv_device* listed) {
  const std::string what = "open " + device.facts.name;
  const auto context = verbs::from_null(device.api->open_device(listed), what);
  if (!context) {
    Error error = context.error();
    if (error.code == std::errc::file_too_large) {
      error.context +=
          ": its shared memory counts as files, and the limit of the file size is too low; raise it with `ulimit -f`";
    } else if (error.code == std::errc::invalid_argument && device.api == &softdev::api()) {
      if (const std::string setting = softdev::invalid_setting(); !setting.empty()) error.context += ": " + setting;
    }
    return error;
  }
  device.context = verbs::ContextHandle(*device.api, *context);
  return read_device(device);
}

}  // namespace

std::vector<ScannedDevice> scan_devices(const verbs::Api& api, const std::string& name) {
  const verbs::DeviceList list(api);
  std::vector<ScannedDevice> scanned;
  for (int i = 0; i < list.size(); ++i) {
    ScannedDevice& device = scanned.emplace_back();
    device.api = &api;
    device.facts.name = list[i]->name;
    if (!name.empty() && device.facts.name != name) continue;
    const Status status = open_and_read(device, list[i]);
    if (status.ok()) continue;
    device.failure = status.error();
    device.facts.unusable = status.message();
  }
  return scanned;
}

Transport transport_of(const verbs::Api& api, const ibv_context& context, const ibv_port_attr& port) noexcept {
  if (&api == &softdev::api()) return Transport::kSoftware;
  switch (context.device->transport_type) {
    case IBV_TRANSPORT_IWARP: return Transport::kIwarp;
    case IBV_TRANSPORT_IB:
    case IBV_TRANSPORT_UNKNOWN:  // drivers that report no type belong to InfiniBand or RoCE
      return port.link_layer == IBV_LINK_LAYER_ETHERNET ? Transport::kRoce : Transport::kInfiniBand;
    default: return Transport::kUnknown;
  }
}

std::vector<GidEntry> read_gids(const verbs::Api& api, ibv_context* context, std::uint8_t port,
                                const ibv_port_attr& attributes) {
  std::vector<GidEntry> entries;
  const int count = std::min(attributes.gid_tbl_len, kMaxGids);
  for (int index = 0; index < count; ++index) {
    ibv_gid_entry entry{};
    // An empty entry is reported as an error by some devices and as zeroes by others.
    if (api.query_gid_entry(context, port, static_cast<std::uint32_t>(index), &entry) != 0) continue;
    if (verbs::is_empty(entry.gid)) continue;
    entries.push_back({index, static_cast<GidType>(entry.gid_type), verbs::from_ibv(entry.gid), entry.ndev_ifindex});
  }
  return entries;
}

}  // namespace rdmacomm
