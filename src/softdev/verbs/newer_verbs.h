// newer_verbs.h - soft0's verbs with structures that older releases of <infiniband/verbs.h> do not declare.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>

struct ibv_buf;
struct ibv_dmah;

namespace rdmacomm::softdev {

/// The layout of ibv_mr_init_attr (rdma-core since release 60).
struct MrInitAttr {
  std::size_t length;
  int access;
  std::uint64_t given;  ///< `comp_mask`: bits of kMr...
  std::uint64_t iova;
  void* address;
  int fd;
  std::uint64_t fd_offset;
  ibv_dmah* dma_handle;
  ibv_buf* buffer;
};
inline constexpr std::uint64_t kMrIova = 1 << 0;
inline constexpr std::uint64_t kMrAddress = 1 << 1;
inline constexpr std::uint64_t kMrFd = 1 << 2;
inline constexpr std::uint64_t kMrFdOffset = 1 << 3;
inline constexpr std::uint64_t kMrDmaHandle = 1 << 4;
inline constexpr std::uint64_t kMrBuffer = 1 << 5;

/// As ibv_reg_mr_ex. Reads only members whose bits are set, because a program's structure may have fewer members.
ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attributes);

/// A buffer that ibv_alloc_buf has made. Programs do not read its members.
struct Buffer;

/// As ibv_alloc_buf. Peers can map this memory, so their requests to it need no system call.
void* alloc_buf(ibv_pd* pd, std::size_t size, Buffer** buffer);
void free_buf(Buffer* buffer);
/// True for a buffer of alloc_buf() that is not freed. `buffer` may be any address.
[[nodiscard]] bool is_buffer(const Buffer* buffer) noexcept;
/// As ibv_reg_buf_mr.
ibv_mr* reg_buf_mr(ibv_pd* pd, Buffer* buffer, void* address, std::size_t length, int access);

/// As ibv_query_port_speed: in units of 100 Mbit/s.
int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed);

}  // namespace rdmacomm::softdev
