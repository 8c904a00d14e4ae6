#include "softdev/shared/address_map.h"

#include <fcntl.h>
#include <sys/ioctl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/sysmacros.h>
#include <unistd.h>

#include <cerrno>

namespace rdmacomm::softdev {
namespace {

/// The argument of the ioctl PROCMAP_QUERY. Source: include/uapi/linux/fs.h of Linux 6.11.
struct MapQuery {
  std::uint64_t size;
  std::uint64_t flags;
  std::uint64_t address;
  std::uint64_t start;
  std::uint64_t end;
  std::uint64_t range_flags;
  std::uint64_t page_size;
  std::uint64_t offset;
  std::uint64_t inode;
  std::uint32_t device_major;
  std::uint32_t device_minor;
  std::uint32_t name_size;
  std::uint32_t build_id_size;
  std::uint64_t name;
  std::uint64_t build_id;
};
static_assert(sizeof(MapQuery) == 104);
constexpr unsigned long kMapQuery = _IOWR('f', 17, MapQuery);
constexpr std::uint64_t kReadable = 1;
constexpr std::uint64_t kWritable = 2;
constexpr std::uint64_t kExecutable = 4;
constexpr std::uint64_t kShared = 8;
constexpr std::uint64_t kCoveringOrNext = 16;

int protection_of(bool readable, bool writable, bool executable) noexcept {
  return (readable ? PROT_READ : 0) | (writable ? PROT_WRITE : 0) | (executable ? PROT_EXEC : 0);
}

int digit_of(int character) noexcept {
  if (character >= '0' && character <= '9') return character - '0';
  return character >= 'a' && character <= 'f' ? character - 'a' + 10 : -1;
}

}  // namespace

bool FileIdentity::of(int fd, FileIdentity& identity) noexcept {
  struct stat file {};
  if (fd < 0 || fstat(fd, &file) != 0) return false;
  identity = {file.st_ino, major(file.st_dev), minor(file.st_dev)};
  return true;
}

AddressMap::AddressMap(bool as_text) noexcept : fd_(open("/proc/self/maps", O_RDONLY | O_CLOEXEC)), as_text_(as_text) {}

AddressMap::~AddressMap() {
  if (fd_ >= 0) close(fd_);
}

bool AddressMap::find(std::uintptr_t address, MappedRange& range) noexcept {
  if (fd_ < 0) return false;
  if (!as_text_) {
    bool supported = true;
    const bool found = find_by_ioctl(address, range, supported);
    if (supported) return found;
    as_text_ = true;
  }
  if (last_.start > address) restart();
  while (last_.end <= address) {
    if (!next_line(last_)) return false;
  }
  range = last_;
  return true;
}

bool AddressMap::find_by_ioctl(std::uintptr_t address, MappedRange& range, bool& supported) noexcept {
  MapQuery query{};
  query.size = sizeof(query);
  query.flags = kCoveringOrNext;
  query.address = address;
  if (ioctl(fd_, kMapQuery, &query) != 0) {
    supported = errno == ENOENT;
    return false;
  }
  range = {query.start,
           query.end,
           query.offset,
           query.inode,
           query.device_major,
           query.device_minor,
           protection_of((query.range_flags & kReadable) != 0, (query.range_flags & kWritable) != 0,
                         (query.range_flags & kExecutable) != 0),
           (query.range_flags & kShared) != 0};
  return true;
}

void AddressMap::restart() noexcept {
  lseek(fd_, 0, SEEK_SET);
  last_ = {};
  used_ = filled_ = 0;
}

int AddressMap::next_character() noexcept {
  if (used_ == filled_) {
    ssize_t count = 0;
    do {
      count = read(fd_, buffer_, sizeof(buffer_));
    } while (count < 0 && errno == EINTR);
    if (count <= 0) return -1;
    used_ = 0;
    filled_ = static_cast<std::size_t>(count);
  }
  return static_cast<unsigned char>(buffer_[used_++]);
}

/// Reads a line "start-end rwxp offset major:minor inode name". Returns false: it was the last one.
bool AddressMap::next_line(MappedRange& range) noexcept {
  int end_of_number = 0;
  const auto number = [this, &end_of_number](unsigned base) {
    std::uint64_t value = 0;
    while (true) {
      end_of_number = next_character();
      const int digit = digit_of(end_of_number);
      if (digit < 0) return value;
      value = value * base + static_cast<unsigned>(digit);
    }
  };
  range = {};
  range.start = number(16);
  range.end = number(16);
  const bool readable = next_character() == 'r';
  const bool writable = next_character() == 'w';
  const bool executable = next_character() == 'x';
  range.protection = protection_of(readable, writable, executable);
  range.shared = next_character() == 's';
  if (next_character() != ' ') return false;  // the end of the file
  range.offset = number(16);
  range.device_major = static_cast<std::uint32_t>(number(16));
  range.device_minor = static_cast<std::uint32_t>(number(16));
  range.inode = number(10);
  int character = end_of_number;
  while (character != '\n' && character >= 0) character = next_character();
  return true;
}

}  // namespace rdmacomm::softdev
