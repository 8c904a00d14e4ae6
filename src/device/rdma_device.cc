#include "rdmacomm/device/rdma_device.h"

#include <algorithm>

#include "rdmacomm/base/log.h"
#include "rdmacomm/device/device_list.h"
#include "rdmacomm/softdev/softdev.h"
#include "rdmacomm/verbs/call.h"
#include "rdmacomm/verbs/describe.h"

namespace rdmacomm {
namespace {

std::string joined(const std::vector<std::string>& parts, const char* separator) {
  std::string text;
  for (const std::string& part : parts) text += (text.empty() ? "" : separator) + part;
  return text;
}

Error unknown_device(const std::string& name, const std::vector<std::string>& known) {
  return make_error(Errc::kNoDevice, "there is no RDMA device \"" + name + "\" here; there is " +
                                         (known.empty() ? std::string("none at all") : joined(known, ", ")));
}

// Queue pairs of iWARP and usNIC devices cannot be connected by modify_qp, which is what RDMAAdapter does.
bool connects_by_modify_qp(const ibv_device& device) {
  return device.transport_type == IBV_TRANSPORT_IB || device.transport_type == IBV_TRANSPORT_UNKNOWN;
}

}  // namespace

Status DeviceOptions::validate() const {
  if (gid_index < -1 || gid_index > 255) {
    return make_error(Errc::kInvalidArgument,
                      "a GID index is 0 to 255, or -1 to have it chosen, not " + std::to_string(gid_index));
  }
  return {};
}

RDMADevice::RDMADevice(const verbs::Api& api, DeviceOptions options, verbs::ContextHandle context, std::string name)
    : api_(api), options_(std::move(options)), context_(std::move(context)), name_(std::move(name)) {}

RDMADevice::~RDMADevice() {
  if (pd_) RDMACOMM_VLOG(1) << "closing " << to_text();
}

Result<std::unique_ptr<RDMADevice>> RDMADevice::open(const DeviceOptions& options) {
  if (!options.name.empty()) {
    std::vector<std::string> known;
    for (const DeviceInfo& info : list_devices()) {
      if (info.name == options.name) return open_from(*info.api, options);
      known.push_back(info.name);
    }
    return unknown_device(options.name, known);
  }
  auto hardware = open_from(verbs::libibverbs_api(), options);
  if (hardware || hardware.code() == Errc::kInvalidArgument) return hardware;
  DeviceOptions software = options;
  software.name = softdev::kDeviceName;
  auto opened = open_from(softdev::api(), software);
  if (opened) {
    RDMACOMM_LOG(WARNING) << "no RDMA hardware to use (" << hardware.error().context << "): using "
                          << softdev::kDeviceName << ", a software device that reaches processes of this host only";
  }
  return opened;
}

Result<std::unique_ptr<RDMADevice>> RDMADevice::open_from(const verbs::Api& api, const DeviceOptions& options) {
  if (Status status = options.validate(); !status.ok()) return status.error();
  const verbs::DeviceList list(api);
  std::vector<std::string> known;
  std::vector<std::string> refusals;
  for (int i = 0; i < list.size(); ++i) {
    const std::string name = list[i]->name;
    known.push_back(name);
    if (!options.name.empty() && name != options.name) continue;
    if (options.name.empty() && !connects_by_modify_qp(*list[i])) {
      refusals.push_back(name + " is not an InfiniBand or RoCE device");
      continue;
    }
    auto opened = open_one(api, list[i], options);
    if (opened || !options.name.empty()) return opened;
    refusals.push_back(opened.error().message());
  }
  if (!options.name.empty()) return unknown_device(options.name, known);
  if (known.empty()) return make_error(Errc::kNoDevice, std::string(api.name) + " finds no RDMA device");
  return make_error(Errc::kNoActivePort, joined(refusals, "; "));
}

Result<std::unique_ptr<RDMADevice>> RDMADevice::open_one(const verbs::Api& api, ibv_device* device,
                                                         const DeviceOptions& options) {
  const std::string name = device->name;
  const std::string what = "open " + name;
  const auto context = verbs::from_null(api.open_device(device), what);
  if (!context) return context.error();
  std::unique_ptr<RDMADevice> opened(new RDMADevice(api, options, verbs::ContextHandle(api, *context), name));
  if (Status status = opened->read_limits(); !status.ok()) return status.error();
  const std::string pd_text = "allocate a protection domain on " + opened->to_text();
  const auto pd = verbs::from_null(api.alloc_pd(*context), pd_text);
  if (!pd) return pd.error();
  opened->pd_ = verbs::PdHandle(api, *pd);
  RDMACOMM_VLOG(1) << "opened " << opened->to_text() << " by " << api.name;
  return opened;
}

bool RDMADevice::is_software() const noexcept {
  return &api_ == &softdev::api();
}

// Sets port_ and port_attributes_ to the port asked for, or to the first ACTIVE one.
Status RDMADevice::find_port(int port_count) {
  if (options_.port > port_count) {
    return make_error(Errc::kInvalidArgument, name_ + " has ports 1 to " + std::to_string(port_count) + ", not " +
                                                  std::to_string(options_.port));
  }
  const int first = options_.port == 0 ? 1 : options_.port;
  const int last = options_.port == 0 ? port_count : options_.port;
  std::vector<std::string> states;
  for (int port = first; port <= last; ++port) {
    ibv_port_attr attributes{};
    const int returned = api_.query_port(context_.get(), static_cast<std::uint8_t>(port), &attributes);
    const std::string text = "port " + std::to_string(port) + " of " + name_;
    if (Status status = verbs::from_value(returned, "query " + text); !status.ok()) return status;
    if (attributes.state == IBV_PORT_ACTIVE) {
      port_ = static_cast<std::uint8_t>(port);
      port_attributes_ = attributes;
      return {};
    }
    states.push_back(text + " is " + verbs::to_text(attributes.state));
  }
  const std::string text = states.empty() ? name_ + " has no ports" : joined(states, ", ");
  return make_error(Errc::kNoActivePort, text + "; check the cable, the link and the subnet manager");
}

Status RDMADevice::read_limits() {
  ibv_device_attr attributes{};
  const int returned = api_.query_device(context_.get(), &attributes);
  if (Status status = verbs::from_value(returned, "query " + name_); !status.ok()) return status;
  if (Status status = find_port(attributes.phys_port_cnt); !status.ok()) return status;
  if (options_.gid_index >= port_attributes_.gid_tbl_len) {
    return make_error(Errc::kInvalidArgument, to_text() + " has GID indexes 0 to " +
                                                  std::to_string(port_attributes_.gid_tbl_len - 1) + ", not " +
                                                  std::to_string(options_.gid_index));
  }
  constexpr int kMaxReadDepth = 255;  // ibv_qp_attr has 8 bits for it
  limits_ = {.max_qp_wr = attributes.max_qp_wr,
             .max_sge = attributes.max_sge,
             .max_cqe = attributes.max_cqe,
             .max_qp = attributes.max_qp,
             .max_read_depth = std::min(attributes.max_qp_rd_atom, kMaxReadDepth),
             .max_read_depth_initiator = std::min(attributes.max_qp_init_rd_atom, kMaxReadDepth),
             .max_region_bytes = attributes.max_mr_size,
             .max_message_bytes = port_attributes_.max_msg_sz,
             .mtu_bytes = verbs::mtu_bytes(port_attributes_.active_mtu),
             .atomics = attributes.atomic_cap != IBV_ATOMIC_NONE};
  if (limits_.mtu_bytes == 0) return make_error(Errc::kNotSupported, to_text() + " does not say its MTU");
  return {};
}

Result<CompletionQueue*> RDMADevice::shared_completion_queue(const std::string& key,
                                                             const CompletionQueueOptions& options) {
  const std::scoped_lock lock(shared_queues_mutex_);
  if (const auto found = shared_queues_.find(key); found != shared_queues_.end()) {
    CompletionQueue* queue = found->second.get();
    if (!options.with_channel || queue->fd() >= 0) return queue;
    return make_error(Errc::kWrongState, "the completion queue shared as \"" + key +
                                             "\" was made without a completion channel; ask for one at its first use");
  }
  auto created = CompletionQueue::create(*this, options);
  if (!created) return std::move(created).error();
  return shared_queues_.emplace(key, std::move(created).value()).first->second.get();
}

std::string RDMADevice::to_text() const {
  return name_ + " port " + std::to_string(port_) + " (" + verbs::link_layer_text(port_attributes_.link_layer) +
         ", MTU " + std::to_string(verbs::mtu_bytes(port_attributes_.active_mtu)) + ")";
}

}  // namespace rdmacomm
