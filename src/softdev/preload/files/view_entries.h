// view_entries.h - the contents of the view of the device files: which files soft devices have, and the text in each.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev::preload {

struct ViewEntry {
  enum class Kind : std::uint8_t {
    kFolder,
    kFile,  ///< a file with `text`
    kLink,  ///< a symbolic link to `text`
    kNode,  ///< a character device with the number `device`
  };
  Kind kind;
  std::string path;  ///< absolute. Its folder is either an earlier entry, or is made for it
  std::string text;
  dev_t device = 0;
  /// The entry leads to a file of the system with the same path. A program that opens this path gets the system's file.
  bool is_system = false;
};

/// The system's own entries in the folders of the view: those of RDMA devices that the kernel has.
struct SystemEntries {
  std::vector<std::string> paths;  ///< absolute, for example /sys/class/infiniband/mlx5_0
  /// Number of the first soft device in names such as uverbs2: they are larger than those of the kernel.
  unsigned first_number = 0;
};
/// Reads the folders. Call with the view switched off for this thread (ViewOff).
[[nodiscard]] SystemEntries read_system_entries();

/// The name of the character device of the soft device with this index: uverbs0.
[[nodiscard]] std::string verbs_name(const SystemEntries& system, unsigned index);

/// The number of the device node rdma_cm, if this library serves it.
[[nodiscard]] dev_t connection_manager_device() noexcept;

/// All entries, a folder before the entries in it.
/// has_connection_manager  whether a device node is served for rdma_cm (device_node.h)
/// Returns  0, or an errno value if the system does not report the state of the network.
[[nodiscard]] int describe_view(const std::vector<DeviceIdentity>& devices, const SystemEntries& system,
                                bool has_connection_manager, std::vector<ViewEntry>& entries);

/// A number that differs from the previous one if a text of the view may have changed since: it covers the GUID, the
/// addresses, the states of the ports, and the interfaces that devices belong to.
/// Cost: system calls.
[[nodiscard]] std::uint64_t network_state(std::span<const DeviceIdentity> devices);

/// A hash of all entries, for the name of their tree.
[[nodiscard]] std::uint64_t hash_of(const std::vector<ViewEntry>& entries);

}  // namespace rdmacomm::softdev::preload
