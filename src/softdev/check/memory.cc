#include "softdev/check/memory.h"

#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <vector>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace rdmacomm::softdev::check {
namespace {

using Copy = ssize_t (*)(pid_t, const iovec*, unsigned long, const iovec*, unsigned long, unsigned long);

/// Where the kernel refuses these calls (a filter of a container), the memory is accessed directly.
bool copy_guarded(Copy copy, void* own, std::uint64_t address, std::uint64_t length, bool& is_refused) {
  iovec local{own, length};
  iovec remote{reinterpret_cast<void*>(address), length};
  while (local.iov_len != 0) {
    const ssize_t copied = copy(getpid(), &local, 1, &remote, 1, 0);
    if (copied <= 0) {
      is_refused = copied < 0 && (errno == EPERM || errno == ENOSYS);
      return false;
    }
    local = {static_cast<std::byte*>(local.iov_base) + copied, local.iov_len - static_cast<std::size_t>(copied)};
    remote = {static_cast<std::byte*>(remote.iov_base) + copied, local.iov_len};
  }
  return true;
}

}  // namespace

bool read_memory(void* to, std::uint64_t from, std::uint64_t length) {
  const int error = errno;
  bool is_refused = false;
  bool done = copy_guarded(process_vm_readv, to, from, length, is_refused);
  if (is_refused) {
    std::memcpy(to, reinterpret_cast<const void*>(from), length);
    done = true;
  }
  errno = error;
  return done;
}

bool write_memory(std::uint64_t to, const void* from, std::uint64_t length) {
  const int error = errno;
  bool is_refused = false;
  bool done = copy_guarded(process_vm_writev, const_cast<void*>(from), to, length, is_refused);
  if (is_refused) {
    std::memcpy(reinterpret_cast<void*>(to), from, length);
    done = true;
  }
  errno = error;
  return done;
}

std::optional<std::uint64_t> hash_memory(std::span<const Bytes> pieces) {
  if (constexpr std::uint64_t kShort = 1024; pieces.size() == 1 && pieces[0].length <= kShort) {
    std::array<std::byte, kShort> all;
    if (!read_memory(all.data(), pieces[0].address, pieces[0].length)) return std::nullopt;
    return XXH3_64bits(all.data(), pieces[0].length);
  }
  constexpr std::uint64_t kPiece = std::uint64_t{16} << 10;  // stays in the first-level cache
  std::vector<std::byte> piece(kPiece);                      // not on the stack, because threads may have small ones
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (const Bytes& bytes : pieces) {
    for (std::uint64_t done = 0; done < bytes.length;) {
      const std::uint64_t length = std::min(kPiece, bytes.length - done);
      if (!read_memory(piece.data(), bytes.address + done, length)) return std::nullopt;
      XXH3_64bits_update(&state, piece.data(), length);
      done += length;
    }
  }
  return XXH3_64bits_digest(&state);
}

}  // namespace rdmacomm::softdev::check
