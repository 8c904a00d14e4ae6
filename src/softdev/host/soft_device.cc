#include "softdev/host/soft_device.h"

#include <endian.h>

#include <cstdio>
#include <mutex>
#include <utility>
#include <vector>

#include "rdmacomm/softdev.h"
#include "softdev/common/device_limits.h"
#include "softdev/host/gid_table.h"
#include "softdev/host/port_watch.h"
#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {

namespace {

// Values of ibv_port_attr::phys_state, with the names that ibv_devinfo prints.
constexpr std::uint8_t kLinkDisabled = 3;
constexpr std::uint8_t kLinkUp = 5;

/// Never called: its address marks a device as a soft device.
ibv_context* mark(ibv_device* /*device*/, int /*descriptor*/) {
  return nullptr;
}

}  // namespace

std::string default_name(unsigned index) {
  return index == 0 ? kDeviceName : "soft" + std::to_string(index);
}

SoftDevice::SoftDevice(DeviceIdentity identity) : PaddedDevice{}, identity_(std::move(identity)) {
  _ops._dummy1 = mark;
  node_type = IBV_NODE_CA;
  transport_type = IBV_TRANSPORT_IB;
  std::snprintf(name, sizeof(name), "%s", identity_.name.c_str());
  std::snprintf(dev_name, sizeof(dev_name), "uverbs-%.50s", name);
  std::snprintf(dev_path, sizeof(dev_path), "/sys/class/infiniband_verbs/%s", dev_name);
  std::snprintf(ibdev_path, sizeof(ibdev_path), "/sys/class/infiniband/%s", name);
}

std::shared_ptr<SoftDevice> SoftDevice::with(const DeviceIdentity& identity) {
  static auto& mutex = *new std::mutex;  // both are never destroyed: programs list devices when they exit
  static auto& known = *new std::vector<std::weak_ptr<SoftDevice>>;
  const std::scoped_lock lock(mutex);
  std::erase_if(known, [](const auto& device) { return device.expired(); });
  for (const auto& device : known) {
    if (auto found = device.lock(); found && found->identity() == identity) return found;
  }
  auto device = std::make_shared<SoftDevice>(identity);
  known.push_back(device);
  return device;
}

bool SoftDevice::is(const ibv_device* device) noexcept {
  return device->_ops._dummy1 == mark;
}

void describe_device(const DeviceIdentity& identity, ibv_device_attr& attributes) {
  attributes = {};
  std::snprintf(attributes.fw_ver, sizeof(attributes.fw_ver), "0.1.0");
  attributes.node_guid = htobe64(device_guid(identity.index));
  attributes.sys_image_guid = htobe64(device_guid(0));
  attributes.vendor_id = kVendorId;
  attributes.vendor_part_id = kVendorPartId;
  attributes.max_mr_size = std::uint64_t{1} << 40;
  attributes.page_size_cap = 4096;
  attributes.max_qp = kMaxQueuePairs;
  attributes.max_qp_wr = kMaxQueueDepth;
  attributes.device_cap_flags = IBV_DEVICE_RC_RNR_NAK_GEN | IBV_DEVICE_XRC | IBV_DEVICE_MEM_WINDOW |
                                IBV_DEVICE_MEM_WINDOW_TYPE_2B | IBV_DEVICE_MEM_MGT_EXTENSIONS;
  attributes.max_sge = kMaxSge;
  attributes.max_sge_rd = kMaxSge;
  attributes.max_cq = kMaxQueuePairs;
  attributes.max_cqe = kMaxCompletions;
  attributes.max_mr = kRegistrationEntries - 1;
  attributes.max_mw = kRegistrationEntries - 1;
  attributes.max_pd = 1 << 24;
  attributes.max_qp_rd_atom = kMaxReadDepth;
  attributes.max_res_rd_atom = kMaxReadDepth * kMaxQueuePairs;
  attributes.max_qp_init_rd_atom = kMaxReadDepth;
  attributes.atomic_cap = IBV_ATOMIC_GLOB;
  attributes.max_srq = kMaxQueuePairs;
  attributes.max_srq_wr = kMaxQueueDepth;
  attributes.max_srq_sge = kMaxSge;
  attributes.max_ah = kMaxAddressHandles;
  attributes.max_mcast_grp = kMaxGroups;
  attributes.max_mcast_qp_attach = kMaxQueuePairs;
  attributes.max_total_mcast_qp_attach = kMaxQueuePairs;
  attributes.max_pkeys = 1;
  attributes.phys_port_cnt = static_cast<std::uint8_t>(identity.ports);
}

void show_down(ibv_port_attr& attributes) noexcept {
  attributes.state = IBV_PORT_DOWN;
  attributes.phys_state = kLinkDisabled;
}

int describe_port(const DeviceIdentity& identity, unsigned port, ibv_port_attr& attributes) {
  HostLinks links(identity.interface);
  std::vector<ibv_gid_entry> gids;
  int error = links.read();
  if (error == 0) error = gid_table(identity, gids);
  if (error != 0) return error;
  attributes = {};
  attributes.state = IBV_PORT_ACTIVE;
  attributes.phys_state = kLinkUp;
  if (!links.any_up()) show_down(attributes);
  attributes.max_mtu = IBV_MTU_4096;
  attributes.active_mtu = IBV_MTU_4096;
  attributes.gid_tbl_len = static_cast<int>(gids.size());
  attributes.max_msg_sz = kMaxMessageBytes;
  attributes.pkey_tbl_len = 1;
  attributes.max_vl_num = 1;
  attributes.active_width = 2;   // 4X
  attributes.active_speed = 64;  // HDR: closest to the copy speed of two cores
  attributes.link_layer = IBV_LINK_LAYER_ETHERNET;
  if (!identity.infiniband) return 0;
  attributes.link_layer = IBV_LINK_LAYER_INFINIBAND;
  attributes.lid = local_lid(identity.index, port);
  attributes.sm_lid = local_lid(0);
  return 0;
}

}  // namespace rdmacomm::softdev
