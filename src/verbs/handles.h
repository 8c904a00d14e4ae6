// handles.h - one owning type for each C handle of the verbs.
// Layer: verbs.
#pragma once

#include <infiniband/verbs.h>

#include <utility>

#include "verbs/api.h"

namespace rdmacomm::verbs {

/// Owns one T and releases it with the member of Api that `Release` names. Movable, not copyable; may be empty. The Api
/// must outlive it (an Api lives as long as the program), and so must every object that the T was created from. A class
/// therefore declares its handles in creation order. If a destructor cannot release its handle, it logs an error.
template <typename T, int (*Api::*Release)(T*)>
class Handle {
 public:
  Handle() = default;
  Handle(const Api& api, T* raw) noexcept : api_(&api), raw_(raw) {}
  Handle(Handle&& other) noexcept : api_(other.api_), raw_(std::exchange(other.raw_, nullptr)) {}
  Handle& operator=(Handle&& other) noexcept {
    if (this != &other) {
      reset();
      api_ = other.api_;
      raw_ = std::exchange(other.raw_, nullptr);
    }
    return *this;
  }
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { reset(); }

  [[nodiscard]] T* get() const noexcept { return raw_; }
  [[nodiscard]] T* operator->() const noexcept { return raw_; }
  explicit operator bool() const noexcept { return raw_ != nullptr; }
  /// Releases the owned handle. Errors are logged.
  void reset() noexcept;

 private:
  const Api* api_ = nullptr;
  T* raw_ = nullptr;
};

using ContextHandle = Handle<ibv_context, &Api::close_device>;
using PdHandle = Handle<ibv_pd, &Api::dealloc_pd>;
using MrHandle = Handle<ibv_mr, &Api::dereg_mr>;
using CompChannelHandle = Handle<ibv_comp_channel, &Api::destroy_comp_channel>;
using CqHandle = Handle<ibv_cq, &Api::destroy_cq>;
using QpHandle = Handle<ibv_qp, &Api::destroy_qp>;
using SrqHandle = Handle<ibv_srq, &Api::destroy_srq>;

/// The list of devices of one Api, freed with it. Opened contexts stay valid after that.
class DeviceList {
 public:
  /// Asks `api` for its devices. On a machine without RDMA support the list is empty, which is no error.
  explicit DeviceList(const Api& api);
  DeviceList(const DeviceList&) = delete;
  DeviceList& operator=(const DeviceList&) = delete;
  ~DeviceList();

  [[nodiscard]] int size() const noexcept { return count_; }
  [[nodiscard]] ibv_device* operator[](int index) const noexcept { return list_[index]; }

 private:
  const Api& api_;
  int count_ = 0;
  ibv_device** list_ = nullptr;
};

}  // namespace rdmacomm::verbs
