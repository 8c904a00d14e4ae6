// context.h - an application's object that an object of the library keeps for it.
// Layer: base.
#pragma once

#include <memory>
#include <type_traits>
#include <typeinfo>
#include <utility>

#include "rdmacomm/version.h"

namespace rdmacomm {

/// A shared pointer to an object of any type. get() must name the type that set() was given.
///
/// Threads  several may call get() at a time; set() must not overlap with any other call
class RDMACOMM_API Context {
 public:
  /// Replaces the pointer, and drops its share of the previous object. An empty pointer leaves no object. T is not
  /// const.
  template <typename T>
  void set(std::shared_ptr<T> object) noexcept {
    static_assert(!std::is_const_v<T>, "Context::set(): the type of the object must not be const");
    type_ = object ? &typeid(T) : nullptr;
    object_ = std::move(object);
  }
  /// The object, which the Context keeps. nullptr: no object was set, or it was set as another type.
  template <typename T>
  [[nodiscard]] T* get() const noexcept {
    return type_ != nullptr && *type_ == typeid(T) ? static_cast<T*>(object_.get()) : nullptr;
  }

 private:
  std::shared_ptr<void> object_;
  const std::type_info* type_ = nullptr;
};

}  // namespace rdmacomm
