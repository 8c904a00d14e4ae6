#include "rdmacomm/adapter.h"

#include <algorithm>

#include "adapter/own_adapter.h"
#include "device/protection_domain_core.h"

namespace rdmacomm {

Result<RDMAAdapter> RDMAAdapter::create(const RDMADevice& device, const AdapterConfig& config,
                                        const AdapterParts& parts) {
  if (!device)
    return make_error(Errc::kInvalidArgument, "a queue pair needs an open device; the given RDMADevice is empty");
  if (parts.domain && parts.domain.device() != device) {
    return make_error(Errc::kInvalidArgument, "AdapterParts::domain belongs to another device than the queue pair");
  }
  DeviceCore& core = *device.core();
  if (Status valid = config.validate(core.limits()); !valid) return valid.error();
  const AdapterConfig fitted = config.fitted(core.limits());
  GidEntry gid;
  if (parts.gid) {
    gid = *parts.gid;
  } else {
    auto chosen = core.choose_gid();
    if (!chosen) return chosen.error();
    gid = *chosen;
  }
  auto queue = NativeQueue::create(
      core, {.depth = std::min(*fitted.send_depth + *fitted.recv_depth, core.limits().max_cqe), .may_grow = true});
  if (!queue) return queue.error();
  auto adapter = AdapterCore::create(core, **queue, **queue, gid, config, nullptr, parts.domain.core());
  if (!adapter) return adapter.error();
  return RDMAAdapter(std::make_unique<OwnAdapter>(device.core(), std::move(queue).value(), std::move(adapter).value()));
}

RDMAAdapter::RDMAAdapter(std::unique_ptr<OwnAdapter> own) noexcept : own_(std::move(own)) {}
RDMAAdapter::RDMAAdapter(RDMAAdapter&& other) noexcept = default;
RDMAAdapter& RDMAAdapter::operator=(RDMAAdapter&& other) noexcept = default;
RDMAAdapter::~RDMAAdapter() = default;

OwnAdapter& RDMAAdapter::own() const {
  if (!own_) detail::die_of_misuse("an RDMAAdapter was used after it was moved from", nullptr);
  return *own_;
}

const QpAddress& RDMAAdapter::address() const {
  return own().adapter().address();
}

Status RDMAAdapter::connect(const QpAddress& remote) {
  return own().adapter().connect(remote);
}

Status RDMAAdapter::to_error() {
  return own().adapter().to_error();
}

const AdapterConfig& RDMAAdapter::config() const {
  return own().adapter().config();
}

std::uint32_t RDMAAdapter::max_inline_bytes() const {
  return own().adapter().max_inline_bytes();
}

std::uint32_t RDMAAdapter::path_mtu_bytes() const {
  return own().adapter().path_mtu_bytes();
}

bool RDMAAdapter::connected() const {
  return own().adapter().connected();
}

RDMADevice RDMAAdapter::device() const {
  return own().device();
}

ibv_qp* RDMAAdapter::native_handle() const {
  return own().adapter().qp();
}

}  // namespace rdmacomm
