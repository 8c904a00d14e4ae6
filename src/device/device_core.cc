#include "device/device_core.h"

#include <algorithm>
#include <iterator>

#include "base/logging.h"
#include "device/device_scan.h"
#include "softdev/common/api.h"
#include "verbs/call.h"
#include "verbs/describe.h"

namespace rdmacomm {
namespace {

Error bad_gid_index(const DeviceCore& device, int count, int index) {
  return make_error(Errc::kInvalidArgument, device.to_text() + " has the GID indexes 0 to " +
                                                std::to_string(count - 1) + ", not " + std::to_string(index));
}

AtomicScope scope_of(ibv_atomic_cap capability) {
  switch (capability) {
    case IBV_ATOMIC_HCA: return AtomicScope::kDevice;
    case IBV_ATOMIC_GLOB: return AtomicScope::kHost;
    default: return AtomicScope::kNone;
  }
}

OnDemandPaging paging_of(const ibv_odp_caps& caps) {
  const auto rc = [&caps](unsigned bit) { return (caps.per_transport_caps.rc_odp_caps & bit) != 0; };
  return {.supported = (caps.general_caps & IBV_ODP_SUPPORT) != 0,
          .implicit = (caps.general_caps & IBV_ODP_SUPPORT_IMPLICIT) != 0,
          .send = rc(IBV_ODP_SUPPORT_SEND),
          .receive = rc(IBV_ODP_SUPPORT_RECV),
          .write = rc(IBV_ODP_SUPPORT_WRITE),
          .read = rc(IBV_ODP_SUPPORT_READ),
          .atomics = rc(IBV_ODP_SUPPORT_ATOMIC)};
}

// Source: SIW_VENDOR_ID in the kernel's drivers/infiniband/sw/siw/siw.h.
constexpr std::uint32_t kSiwVendor = 0x626d74;

DeviceLimits limits_of(const ibv_device_attr_ex& extended, const ibv_port_attr& port, Transport transport) {
  constexpr int kMaxReadDepth = 255;  // ibv_qp_attr has 8 bits for it
  const ibv_device_attr& device = extended.orig_attr;
  const bool is_ethernet = port.link_layer == IBV_LINK_LAYER_ETHERNET;
  return {.max_qp_wr = device.max_qp_wr,
          .max_sge = device.max_sge,
          // Some drivers leave it 0. Drivers with a different limit for READs report it.
          .max_sge_rd = device.max_sge_rd > 0 ? device.max_sge_rd : device.max_sge,
          .max_cqe = device.max_cqe,
          .max_qp = device.max_qp,
          .max_protection_domains = device.max_pd,
          .max_srq = device.max_srq,
          .max_srq_wr = device.max_srq_wr,
          .max_read_depth = std::min(device.max_qp_rd_atom, kMaxReadDepth),
          .max_read_depth_initiator = std::min(device.max_qp_init_rd_atom, kMaxReadDepth),
          .max_region_bytes = device.max_mr_size,
          .max_message_bytes = port.max_msg_sz,
          .mtu_bytes = verbs::mtu_bytes(port.active_mtu),
          .flushes_in_error = device.vendor_id != kSiwVendor,
          .completes_in_order = device.vendor_id != kSiwVendor,
          .immediate_data = transport != Transport::kIwarp,
          .atomics = device.atomic_cap != IBV_ATOMIC_NONE,
          .atomic_scope = scope_of(device.atomic_cap),
          .on_demand_paging = paging_of(extended.odp_caps),
          .max_service_level = static_cast<std::uint8_t>(is_ethernet ? 7 : 15)};
}

}  // namespace

DeviceCore::DeviceCore(const verbs::Api& api, DeviceOptions options, const HostNetwork& network,
                       verbs::ContextHandle context)
    : api_(api),
      options_(std::move(options)),
      network_(network),
      context_(std::move(context)),
      events_(api, *context_.get()),
      name_(context_->device->name) {}

DeviceCore::~DeviceCore() {
  if (pd_) RDMACOMM_VLOG(1) << "closing " << to_text();
}

Result<std::shared_ptr<DeviceCore>> DeviceCore::open(const DeviceOptions& options, const OpenHints& hints) {
  return open_among({&verbs::libibverbs_api(), &softdev::api()}, options, hints);
}

Result<std::shared_ptr<DeviceCore>> DeviceCore::open_from(const verbs::Api& api, const DeviceOptions& options,
                                                          const OpenHints& hints) {
  return open_among({&api}, options, hints);
}

Result<std::shared_ptr<DeviceCore>> DeviceCore::open_among(const std::vector<const verbs::Api*>& apis,
                                                           const DeviceOptions& options, const OpenHints& hints) {
  if (Status status = options.validate(); !status.ok()) return status.error();
  std::vector<ScannedDevice> scanned;
  for (const verbs::Api* api : apis) std::ranges::move(scan_devices(*api, options.name), std::back_inserter(scanned));
  AddressingInput input{.interfaces = hints.network->interfaces(),
                        .route = hints.route,
                        .options = options,
                        .connect_by = hints.connect_by};
  for (const ScannedDevice& device : scanned) {
    if (device.failure && device.facts.name == options.name) return *device.failure;
    input.devices.push_back(device.facts);
  }
  const auto choice = choose_address(input);
  if (!choice) return choice.error();
  ScannedDevice& chosen = scanned[choice->device];
  std::shared_ptr<DeviceCore> opened(new DeviceCore(*chosen.api, options, *hints.network, std::move(chosen.context)));
  if (Status status = opened->set_up(choice->port); !status.ok()) return status.error();
  if (options.name.empty() && opened->is_software() && apis.size() > 1) {
    // If the machine has other devices, the explanation says for each of their ports why it cannot be used.
    RDMACOMM_LOG(WARNING) << "no usable RDMA hardware found: using " << opened->name() << ", a device in software"
                          << (scanned.size() > 1 ? " (" + choice->explanation + ")" : "");
  }
  RDMACOMM_VLOG(1) << choice->explanation;
  return opened;
}

Status DeviceCore::set_up(std::uint8_t port) {
  port_ = port;
  const int returned = api_.query_port(context_.get(), port_, &port_attributes_);
  const std::string what = "query port " + std::to_string(port_) + " of " + name_;
  if (Status status = verbs::from_value(returned, what); !status.ok()) return status;
  transport_ = transport_of(api_, *context_.get(), port_attributes_);
  if (Status status = read_limits(); !status.ok()) return status;
  const auto pd = verbs::from_null(api_.alloc_pd(context_.get()), "allocate a protection domain on " + to_text());
  if (!pd) return pd.status();
  pd_ = verbs::PdHandle(api_, *pd);
  RDMACOMM_VLOG(1) << "opened " << to_text() << " by " << api_.name;
  return {};
}

bool DeviceCore::is_software() const noexcept {
  return transport_ == Transport::kSoftware;
}

bool DeviceCore::known_to_rdma_cm() const noexcept {
  return transport_ != Transport::kSoftware && transport_ != Transport::kUnknown;
}

Status DeviceCore::read_limits() {
  ibv_device_attr_ex extended{};
  const int returned = api_.query_device_ex(context_.get(), &extended);
  if (Status status = verbs::from_value(returned, "query " + name_); !status.ok()) return status;
  if (options_.gid_index >= port_attributes_.gid_tbl_len) {
    return bad_gid_index(*this, port_attributes_.gid_tbl_len, options_.gid_index);
  }
  limits_ = limits_of(extended, port_attributes_, transport_);
  if (limits_.mtu_bytes == 0) return make_error(Errc::kNotSupported, to_text() + " reports no MTU");
  return {};
}

Status DeviceCore::check_port() const {
  ibv_port_attr attributes{};
  const std::string what = "port " + std::to_string(port_) + " of " + name_;
  const int returned = api_.query_port(context_.get(), port_, &attributes);
  if (Status status = verbs::from_value(returned, "query " + what); !status.ok()) return status;
  if (attributes.state == IBV_PORT_ACTIVE || attributes.state == IBV_PORT_ACTIVE_DEFER) return {};
  return make_error(Errc::kNoActivePort, what + " is " + verbs::to_text(attributes.state) +
                                             (is_software() ? "; no network interface of this host is up"
                                                            : "; check the cable, the link and the subnet manager"));
}

std::string DeviceCore::to_text() const {
  return name_ + " port " + std::to_string(port_) + " (" + verbs::link_layer_text(port_attributes_.link_layer) +
         ", MTU " + std::to_string(verbs::mtu_bytes(port_attributes_.active_mtu)) + ")";
}

}  // namespace rdmacomm
