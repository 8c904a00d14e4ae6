// handle.h - what RDMADevice, ProtectionDomain, BufferPool, ReceivePool, TCPConnector, TCPListener and EndPoint have in
// common.
// Layer: base.
#pragma once

#include <memory>
#include <utility>

#include "rdmacomm/result.h"

namespace rdmacomm::detail {

/// What messages call a handle of a Core.
template <typename Core>
inline constexpr const char* kHandleName = nullptr;

/// For callers that use an empty handle: a bug of the program's. Logs it, and ends the program by abort().
[[noreturn]] RDMACOMM_API void die_of_misuse_of_empty(const char* handle) noexcept;

/// A value through which an object of the library is used. Copies share the object. The object lives until the last
/// copy is gone, and until everything that the library has made on it is gone.
///
/// A handle that was made without arguments is empty: it has no object. Only `if (handle)`, comparing and assigning are
/// possible with it. Any other call on it is a mistake of the program, and ends the program with one line that says so.
///
/// Threads  several threads may use copies, or one handle, at a time. Assigning to a handle needs it alone
template <typename Core>
class RDMACOMM_API SharedHandle {
 public:
  SharedHandle() noexcept = default;
  /// For the library: users have no Core.
  SharedHandle(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}  // NOLINT(google-explicit-constructor)

  /// Whether there is an object.
  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// Whether both have the same object.
  friend bool operator==(const SharedHandle&, const SharedHandle&) noexcept = default;
  /// For the library.
  [[nodiscard]] const std::shared_ptr<Core>& core() const noexcept { return core_; }

 protected:
  [[nodiscard]] Core& object() const noexcept {
    if (core_ == nullptr) die_of_misuse_of_empty(kHandleName<Core>);
    return *core_;
  }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace rdmacomm::detail
