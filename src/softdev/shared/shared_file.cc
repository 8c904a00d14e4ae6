#include "softdev/shared/shared_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <iterator>
#include <utility>

namespace rdmacomm::softdev {
namespace {

constexpr std::uint64_t kMaxBytes = std::uint64_t{1} << 40;

/// The size of the sparse file. It limits the allocations of one context and uses no memory itself. A limit on file
/// sizes (ulimit -f) still applies, and the kernel kills a process that exceeds it.
std::uint64_t file_bytes() noexcept {
  rlimit limit{};
  if (getrlimit(RLIMIT_FSIZE, &limit) != 0 || limit.rlim_cur == RLIM_INFINITY) return kMaxBytes;
  constexpr std::uint64_t kHugePage = std::uint64_t{2} << 20;
  return std::min<std::uint64_t>(limit.rlim_cur / kHugePage * kHugePage, kMaxBytes);
}

}  // namespace

Mapping::Mapping(int fd, std::uint64_t offset, std::size_t length, bool writable) noexcept {
  const int protection = PROT_READ | (writable ? PROT_WRITE : 0);
  void* address = mmap(nullptr, length, protection, MAP_SHARED, fd, static_cast<off_t>(offset));
  if (address == MAP_FAILED) return;
  madvise(address, length, MADV_DONTFORK);
  // Reduces page faults if the system allows huge pages in shared memory. A refusal does no harm.
  madvise(address, length, MADV_HUGEPAGE);
  data_ = static_cast<std::byte*>(address);
  length_ = length;
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)), length_(std::exchange(other.length_, 0)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  if (this != &other) {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    length_ = std::exchange(other.length_, 0);
  }
  return *this;
}

void Mapping::reset() noexcept {
  if (data_ != nullptr) munmap(data_, length_);
  data_ = nullptr;
  length_ = 0;
}

bool SharedFile::open_locked() {
  if (fd_) return true;
  UniqueFd fd(memfd_create(name_, MFD_CLOEXEC | MFD_ALLOW_SEALING | memfd_flags_));
  bytes_ = file_bytes();
  if (!fd || ftruncate(fd.get(), static_cast<off_t>(bytes_)) != 0) return false;
  // A peer that maps the file must never access memory beyond its end.
  fcntl(fd.get(), F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW);
  if (bytes_ != 0) free_.emplace(0, bytes_);
  fd_ = std::move(fd);
  return true;
}

SharedBlock SharedFile::allocate(std::size_t length) {
  length = (length + granule_ - 1) / granule_ * granule_;
  const std::scoped_lock lock(mutex_);
  if (!open_locked()) return {};
  const std::uint64_t offset = take_locked(length);
  if (offset == bytes_) {
    errno = bytes_ < kMaxBytes ? EFBIG : ENOMEM;  // EFBIG: the limit on file sizes made the file smaller
    return {};
  }
  Mapping mapping(fd_.get(), offset, length, true);
  if (mapping.empty()) {
    const int error = errno;
    give_locked(offset, length);
    errno = error;
  }
  return {offset, std::move(mapping)};
}

void SharedFile::free(SharedRange range) {
  if (range.length == 0) return;
  const std::scoped_lock lock(mutex_);
  if (!keeps_contents_) {
    fallocate(fd_.get(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(range.offset),
              static_cast<off_t>(range.length));
  }
  give_locked(range.offset, range.length);
}

void SharedFile::keep_contents() {
  const std::scoped_lock lock(mutex_);
  keeps_contents_ = true;
}

void SharedFile::forbid_writing() {
  const std::scoped_lock lock(mutex_);
  if (open_locked()) fcntl(fd_.get(), F_ADD_SEALS, F_SEAL_FUTURE_WRITE);
}

int SharedFile::fd() {
  const std::scoped_lock lock(mutex_);
  return open_locked() ? fd_.get() : -1;
}

std::uint64_t SharedFile::take_locked(std::size_t length) {
  for (auto it = free_.begin(); it != free_.end(); ++it) {
    if (it->second < length) continue;
    const std::uint64_t offset = it->first;
    auto rest = free_.extract(it);  // reused without an allocation, which could fail and lose the rest
    rest.key() += length;
    rest.mapped() -= length;
    if (rest.mapped() > 0) free_.insert(std::move(rest));
    return offset;
  }
  return bytes_;
}

void SharedFile::give_locked(std::uint64_t offset, std::size_t length) {
  auto it = free_.emplace(offset, length).first;
  const auto after = std::next(it);
  if (after != free_.end() && it->first + it->second == after->first) {
    it->second += after->second;
    free_.erase(after);
  }
  if (it == free_.begin()) return;
  const auto before = std::prev(it);
  if (before->first + before->second == it->first) {
    before->second += it->second;
    free_.erase(it);
  }
}

}  // namespace rdmacomm::softdev
