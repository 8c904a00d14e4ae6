// own_adapter.h - a queue pair that owns its completion queue: the object behind an RDMAAdapter.
// Layer: adapter.
#pragma once

#include <memory>

#include "adapter/adapter_core.h"
#include "device/device_core.h"
#include "device/native_queue.h"
#include "rdmacomm/adapter.h"

namespace rdmacomm {

class OwnAdapter {
 public:
  OwnAdapter(std::shared_ptr<DeviceCore> device, std::unique_ptr<NativeQueue> queue,
             std::unique_ptr<AdapterCore> adapter) noexcept
      : device_(std::move(device)), queue_(std::move(queue)), adapter_(std::move(adapter)) {}

  [[nodiscard]] const std::shared_ptr<DeviceCore>& device() const noexcept { return device_; }
  [[nodiscard]] AdapterCore& adapter() const noexcept { return *adapter_; }
  /// For a channel that is made from this object. This object must outlive the channel.
  [[nodiscard]] std::unique_ptr<AdapterCore> take_adapter() noexcept { return std::move(adapter_); }

 private:
  // Each member needs the ones before it.
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
  std::unique_ptr<AdapterCore> adapter_;
};

}  // namespace rdmacomm
