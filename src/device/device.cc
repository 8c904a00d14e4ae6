#include "rdmacomm/device.h"

#include "device/device_core.h"

namespace rdmacomm {

Result<RDMADevice> RDMADevice::open(const DeviceOptions& options) {
  auto core = DeviceCore::open(options);
  if (!core) return std::move(core).error();
  return RDMADevice(std::move(core).value());
}

const std::string& RDMADevice::name() const {
  return object().name();
}

bool RDMADevice::is_software() const {
  return object().is_software();
}

std::uint8_t RDMADevice::port() const {
  return object().port();
}

Transport RDMADevice::transport() const {
  return object().transport();
}

const DeviceLimits& RDMADevice::limits() const {
  return object().limits();
}

const DeviceOptions& RDMADevice::options() const {
  return object().options();
}

std::vector<GidEntry> RDMADevice::gids() const {
  return object().gids();
}

Status RDMADevice::check_port() const {
  return object().check_port();
}

std::string RDMADevice::to_text() const {
  return object().to_text();
}

Result<DeviceSubscription> RDMADevice::subscribe(std::function<void(const DeviceEvent&)> function) const {
  auto subscription = object().events().subscribe(std::move(function));
  if (!subscription) return std::move(subscription).error();
  struct State {
    State(std::shared_ptr<DeviceCore> on, DeviceEvents::Subscription with)
        : device(std::move(on)), subscription(std::move(with)) {}

    std::shared_ptr<DeviceCore> device;  // before the subscription, which refers to it
    DeviceEvents::Subscription subscription;
  };
  return DeviceSubscription(std::make_shared<State>(core(), std::move(subscription).value()));
}

void RDMADevice::take_events() const {
  object().events().take();
}

int RDMADevice::events_fd() const {
  return object().events().fd();
}

Status RDMADevice::health() const {
  return object().events().health();
}

ibv_context* RDMADevice::native_handle() const {
  return object().context();
}

ibv_pd* RDMADevice::native_domain() const {
  return object().pd();
}

}  // namespace rdmacomm
