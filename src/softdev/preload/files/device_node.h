// device_node.h - character devices that this library serves itself: /dev/infiniband/rdma_cm.
#pragma once

#include <sys/types.h>
#include <sys/uio.h>

#include <atomic>
#include <cstddef>
#include <string_view>

namespace rdmacomm::softdev::preload {

inline constexpr std::string_view kConnectionManagerNode = "/dev/infiniband/rdma_cm";

/// Serves a device node. An opened node is a descriptor that poll() works on; its kind is up to the implementation.
/// Threads: any, also several at once.
struct DeviceNode {
  /// As open(2). Returns a new descriptor, or -1 and errno.
  virtual int open(int flags) noexcept = 0;
  /// As write(2). May be a cancellation point.
  /// fd  the descriptor from open(), or its new number from moved(). A program may have written to a duplicate of it.
  virtual ssize_t write(int fd, const void* data, std::size_t length) = 0;
  /// The program closes `fd`, and no duplicate of it exists. The descriptor is closed after this call.
  virtual void closed(int fd) noexcept = 0;
  /// The program closes `from`, but not `to`, a duplicate of it. From now on, write() and closed() have the number
  /// `to`.
  virtual void moved(int /*from*/, int /*to*/) noexcept {}
  virtual ~DeviceNode() = default;
};

/// Serves the node at `path` from now on. Before this, the view does not show the node.
/// path  absolute and in normal form; must stay valid
/// node  must live until the process ends
void serve_device_node(std::string_view path, DeviceNode& node) noexcept;
/// nullptr: no node is served at this path.
[[nodiscard]] DeviceNode* find_device_node(std::string_view normal_path) noexcept;

/// Number of descriptors of this process that belong to served nodes. The functions below need not be called if it is 0.
extern std::atomic<int> open_node_descriptors;
[[nodiscard]] inline bool any_node_is_open() noexcept {
  return open_node_descriptors.load(std::memory_order_relaxed) != 0;
}

/// Opens a node, and remembers its descriptor. As open(2).
[[nodiscard]] int open_device_node(DeviceNode& node, int flags) noexcept;
/// The node that a descriptor belongs to, with the number that the node knows; node is nullptr: a different file.
struct OpenNode {
  DeviceNode* node = nullptr;
  int known_as = -1;
};
[[nodiscard]] OpenNode find_open_node(int descriptor) noexcept;
/// `copy` is a new duplicate of `descriptor`. Returns false: its number is too large to be remembered.
[[nodiscard]] bool remember_duplicate(int descriptor, int copy) noexcept;
/// The descriptor is about to be closed.
void forget_node_descriptor(int descriptor) noexcept;
/// The same for all descriptors from `first` to `last`.
void forget_node_descriptors(unsigned first, unsigned last) noexcept;

}  // namespace rdmacomm::softdev::preload
