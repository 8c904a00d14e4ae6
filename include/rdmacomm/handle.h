// handle.h - the common base of RDMADevice, ProtectionDomain, BufferPool, ReceivePool, TCPConnector, TCPListener and
// EndPoint.
// Layer: base.
#pragma once

#include <memory>
#include <utility>

#include "rdmacomm/result.h"

namespace rdmacomm::detail {

/// The name of the handle class of a Core, for error texts.
template <typename Core>
inline constexpr const char* kHandleName = nullptr;

/// Called when a program uses an empty handle, which is a bug in that program. Logs it and ends the program by abort().
[[noreturn]] RDMACOMM_API void die_of_misuse_of_empty(const char* handle) noexcept;

/// A handle to an object of the library. Copies share the object. The object lives until the last copy is gone, and
/// until everything that the library has created on it is gone.
///
/// A default-constructed handle is empty: it has no object. Only `if (handle)`, comparison and assignment are allowed
/// on it. Any other call on it is a bug in the program, and ends the program with one line that says so.
///
/// Threads  several threads may use copies, or one handle, at the same time. Assigning to a handle needs exclusive
///          access
template <typename Core>
class RDMACOMM_API SharedHandle {
 public:
  SharedHandle() noexcept = default;
  /// For the library: users cannot create a Core.
  SharedHandle(std::shared_ptr<Core> core) noexcept : core_(std::move(core)) {}  // NOLINT(google-explicit-constructor)

  /// Whether it has an object.
  explicit operator bool() const noexcept { return core_ != nullptr; }
  /// Whether both refer to the same object.
  friend bool operator==(const SharedHandle&, const SharedHandle&) noexcept = default;
  /// For the library.
  [[nodiscard]] const std::shared_ptr<Core>& core() const noexcept { return core_; }

 protected:
  /// For the classes of the handles. An empty handle ends the program.
  [[nodiscard]] Core& object() const noexcept {
    if (core_ == nullptr) die_of_misuse_of_empty(kHandleName<Core>);
    return *core_;
  }

 private:
  std::shared_ptr<Core> core_;
};

}  // namespace rdmacomm::detail
