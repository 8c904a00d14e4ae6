// qp_ex.h - ibv_qp_ex with the calls that later releases of rdma-core have appended to it.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <cstring>

namespace rdmacomm::softdev {

/// ibv_qp_ex of every release since 33. <infiniband/verbs.h> may be older than the program that calls. So the calls behind
/// wr_abort, the last one of release 33, are set by their offsets.
struct QpEx : ibv_qp_ex {
  void* appended[2];  ///< room for the calls that <infiniband/verbs.h> does not have

  using AtomicWrite = void(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, const void* value);

  using Flush = void(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::size_t length, std::uint8_t type,
                     std::uint8_t level);

  void set_atomic_write(AtomicWrite* function) noexcept { set(1, &function); }
  void set_flush(Flush* function) noexcept { set(2, &function); }

 private:
  /// Sets the pointer that is `place` pointers behind wr_abort.
  void set(std::size_t place, const void* pointer) noexcept {
    static_assert(sizeof(ibv_qp_ex) >= offsetof(ibv_qp_ex, wr_abort) + sizeof(void*));
    const std::size_t offset = offsetof(ibv_qp_ex, wr_abort) + place * sizeof(void*);
    std::memcpy(reinterpret_cast<std::byte*>(this) + offset, pointer, sizeof(void*));
  }
};

}  // namespace rdmacomm::softdev
