// own_adapter.h - a queue pair with a completion queue of its own: what an RDMAAdapter is.
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
  /// For the channel that is made of it, which this must outlive.
  [[nodiscard]] std::unique_ptr<AdapterCore> take_adapter() noexcept { return std::move(adapter_); }

 private:
  // In the order in which they need each other.
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
  std::unique_ptr<AdapterCore> adapter_;
};

}  // namespace rdmacomm
