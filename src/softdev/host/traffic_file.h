// traffic_file.h - the files with the counts of all processes of a user: one for each process, and one for each host
// with the counts of processes that have ended.
//
// They lie in /dev/shm/rdmacomm-counts-UID (or /tmp, if there is no /dev/shm). A process locks its file (flock) while
// it lives. A process that finds a file without this lock adds its counts to the host's file and removes it. So no count is
// lost if a process is killed, and the counters start again only with the system, like those of a NIC.
#pragma once

#include <sys/types.h>

#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/unique_fd.h"
#include "softdev/common/at_exit.h"
#include "softdev/host/soft_device.h"
#include "softdev/host/traffic.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

/// The counts of this process. If no file can be made, or none that is large enough, they lie in private memory, and no
/// other process sees them.
/// Threads: any. Never destroyed, because a process may end while threads still send.
class TrafficFile {
 public:
  /// The file of this process for a host, which device_guid(0) identifies. A child made by fork() gets its own.
  /// Returns  nullptr: no memory.
  [[nodiscard]] static TrafficFile* of_process(std::uint64_t host) noexcept;

  TrafficFile(const TrafficFile&) = delete;
  TrafficFile& operator=(const TrafficFile&) = delete;

  [[nodiscard]] std::atomic<std::uint64_t>& counter(unsigned device, Count kind) noexcept;
  /// A cell that no queue pair uses; nullptr: no memory.
  [[nodiscard]] TrafficCell* take(std::uint32_t device, std::uint32_t target) noexcept;
  void release(TrafficCell* cell) noexcept;

 private:
  explicit TrafficFile(std::uint64_t host);
  ~TrafficFile() = default;

  void create_file();
  /// Adds memory for more cells. Returns false: no memory.
  [[nodiscard]] bool grow_locked();
  void leave() noexcept;
  /// Programs close descriptors that they did not open. The number then may belong to a file of the program.
  [[nodiscard]] bool has_descriptor() const noexcept;

  const std::uint64_t host_;
  const long owner_;
  TrafficFile* of_parent_ = nullptr;
  UniqueFd file_;  // locked
  std::string name_;
  dev_t file_system_ = 0;
  ino_t inode_ = 0;
  std::mutex mutex_;
  std::vector<Mapping> mappings_;
  std::vector<std::unique_ptr<std::byte[]>> private_memory_;
  std::byte* header_ = nullptr;
  std::size_t bytes_ = 0;           // of the file
  bool is_shared_ = false;          // free_ lies in the file
  std::vector<TrafficCell*> free_;  // not used yet
  std::vector<TrafficCell*> used_;  // released, with their devices
  std::unique_ptr<AtExit> at_exit_;
};

/// The counts of all processes of this user on one host.
struct HostTraffic {
  std::uint64_t link_downed = 0;  ///< of the devices that belong to no interface
  std::vector<Counts> devices;    ///< DeviceIdentity::kMaxDevices
};
/// Returns  0, or an errno value. EBUSY: another process has not released its lock for a while. ENOENT: nothing was
///          counted yet.
[[nodiscard]] int read_traffic(std::uint64_t host, HostTraffic& traffic);

/// The number of times that the port of a host has gone down. Each device that belongs to an interface has a number of
/// its own, all others have one number together. Processes note it independently of each other, so each counts on from
/// the number that it found when it began to watch, and the largest result is kept.
[[nodiscard]] std::uint64_t read_link_downed(std::uint64_t host, const DeviceIdentity& device) noexcept;
void raise_link_downed(std::uint64_t host, const DeviceIdentity& device, std::uint64_t number) noexcept;

}  // namespace rdmacomm::softdev
