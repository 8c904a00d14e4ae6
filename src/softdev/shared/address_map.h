// address_map.h - what is mapped at an address of this process, as the kernel knows it.
#pragma once

#include <cstddef>
#include <cstdint>

namespace rdmacomm::softdev {

/// One mapping of this process.
struct MappedRange {
  std::uintptr_t start = 0;
  std::uintptr_t end = 0;
  std::uint64_t offset = 0;  ///< in the file
  std::uint64_t inode = 0;   ///< 0: anonymous memory
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  int protection = 0;  ///< PROT_*
  bool shared = false;
};

/// Identifies an open file in the address map.
struct FileIdentity {
  std::uint64_t inode = 0;
  std::uint32_t device_major = 0;
  std::uint32_t device_minor = 0;
  /// Returns false: `fd` is no open descriptor.
  [[nodiscard]] static bool of(int fd, FileIdentity& identity) noexcept;
  [[nodiscard]] bool operator==(const FileIdentity&) const = default;
  [[nodiscard]] bool is_mapped_in(const MappedRange& range) const noexcept {
    return range.inode == inode && range.device_major == device_major && range.device_minor == device_minor;
  }
};

/// Reads /proc/self/maps: one range per call by ioctl (Linux 6.11), or as text. It allocates no memory, so it may be
/// used in a child of fork() and inside an allocator.
/// Threads: one at a time. Cost: about 2 us by ioctl; as text, in proportion to the number of mappings.
class AddressMap {
 public:
  /// as_text  reads the text, even if the kernel has the ioctl
  explicit AddressMap(bool as_text = false) noexcept;
  AddressMap(const AddressMap&) = delete;
  AddressMap& operator=(const AddressMap&) = delete;
  ~AddressMap();

  /// Finds the first mapping that ends after `address`. Returns false: none, or /proc cannot be read.
  [[nodiscard]] bool find(std::uintptr_t address, MappedRange& range) noexcept;

 private:
  [[nodiscard]] bool find_by_ioctl(std::uintptr_t address, MappedRange& range, bool& supported) noexcept;
  [[nodiscard]] bool next_line(MappedRange& range) noexcept;
  [[nodiscard]] int next_character() noexcept;
  void restart() noexcept;

  int fd_ = -1;
  bool as_text_;
  MappedRange last_;  // the last line that was read, as text
  std::size_t used_ = 0;
  std::size_t filled_ = 0;
  char buffer_[2048];
};

}  // namespace rdmacomm::softdev
