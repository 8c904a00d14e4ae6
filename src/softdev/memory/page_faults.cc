#include "softdev/memory/page_faults.h"

#include <sys/mman.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <cstring>
#include <vector>

#include "softdev/shared/layout.h"

namespace rdmacomm::softdev {
namespace {

/// Copies by `call`, process_vm_writev or process_vm_readv. Returns false: some of the range is not mapped.
template <typename Call>
bool copy_by(Call call, std::byte* own, std::byte* there, std::size_t length, bool& refused) noexcept {
  while (length != 0) {
    const iovec here{own, length};
    const iovec at{there, length};
    const ssize_t moved = call(getpid(), &here, 1, &at, 1, 0);
    if (moved < 0 && errno == EINTR) continue;
    refused = moved < 0 && (errno == EPERM || errno == ENOSYS);
    if (moved <= 0) return false;
    own += moved;
    there += moved;
    length -= static_cast<std::size_t>(moved);
  }
  return true;
}

}  // namespace

int load_pages(const void* address, std::size_t length, bool writable) noexcept {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (length > SIZE_MAX - 2 * kPage) return EFAULT;  // the sum below would wrap
  auto* const first = reinterpret_cast<std::byte*>(start / kPage * kPage);
  const std::size_t span = (start % kPage + length + kPage - 1) / kPage * kPage;
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(first, 0, advice) == 0) return madvise(first, span, advice) == 0 ? 0 : EFAULT;
  // Linux before 5.14 does not support this advice. mincore at least refuses an unmapped range.
  std::vector<unsigned char> present(span / kPage);
  return mincore(first, span, present.data()) == 0 ? 0 : EFAULT;
}

bool write_guarded(std::byte* to, std::span<const std::byte> from) noexcept {
  bool refused = false;
  if (copy_by(process_vm_writev, const_cast<std::byte*>(from.data()), to, from.size(), refused)) return true;
  if (!refused) return false;
  std::memcpy(to, from.data(), from.size());  // a sandbox may refuse the call
  return true;
}

bool read_guarded(std::span<std::byte> to, const std::byte* from) noexcept {
  bool refused = false;
  if (copy_by(process_vm_readv, to.data(), const_cast<std::byte*>(from), to.size(), refused)) return true;
  if (!refused) return false;
  std::memcpy(to.data(), from, to.size());
  return true;
}

}  // namespace rdmacomm::softdev
