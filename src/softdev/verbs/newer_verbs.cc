#include "softdev/verbs/newer_verbs.h"

#include <algorithm>
#include <cerrno>
#include <memory>
#include <mutex>
#include <unordered_set>

#include "softdev/context/soft_context.h"
#include "softdev/host/soft_device.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {

struct Buffer {
  ibv_pd* pd = nullptr;
  ibv_context* context = nullptr;
  std::byte* memory = nullptr;
  std::size_t size = 0;
};

namespace {

/// The buffers of this process. Programs give them back by a pointer without a context, which may belong to another
/// device.
class Buffers {
 public:
  void insert(const Buffer* buffer) {
    const std::scoped_lock lock(mutex_);
    buffers_.insert(buffer);
  }
  /// Returns false: it is not there.
  bool erase(const Buffer* buffer) {
    const std::scoped_lock lock(mutex_);
    return buffers_.erase(buffer) != 0;
  }
  [[nodiscard]] bool contains(const Buffer* buffer) {
    const std::scoped_lock lock(mutex_);
    return buffers_.contains(buffer);
  }

 private:
  std::mutex mutex_;
  std::unordered_set<const Buffer*> buffers_;
};

Buffers& buffers() {
  static Buffers all;
  return all;
}

ibv_mr* register_dmabuf(ibv_pd* pd, const MrInitAttr& attributes) {
  constexpr std::uint64_t kNeeded = kMrFd | kMrFdOffset | kMrIova;
  if ((attributes.given & kNeeded) != kNeeded || (attributes.given & kMrAddress) != 0) return fail<ibv_mr>(EINVAL);
  return reg_dmabuf_mr(pd, attributes.fd_offset, attributes.length, attributes.iova, attributes.fd, attributes.access);
}

/// Returns  0, or an errno value if the range is not in the buffer, or the buffer not of this domain.
int check_buffer(ibv_pd* pd, const Buffer* buffer, void* address, std::size_t length) {
  if (!is_buffer(buffer) || buffer->pd != pd) return EINVAL;
  const std::uint64_t offset =  // wraps to a huge number below the start
      reinterpret_cast<std::uintptr_t>(address) - reinterpret_cast<std::uintptr_t>(buffer->memory);
  return offset > buffer->size || length > buffer->size - offset ? EINVAL : 0;
}

}  // namespace

ibv_mr* reg_mr_ex(ibv_pd* pd, const MrInitAttr& attributes) {
  constexpr std::uint64_t kKnown = kMrIova | kMrAddress | kMrFd | kMrFdOffset | kMrDmaHandle | kMrBuffer;
  const auto given = [&attributes](std::uint64_t bits) { return (attributes.given & bits) != 0; };
  if (given(~kKnown)) return fail<ibv_mr>(EINVAL);
  if (given(kMrDmaHandle)) return fail<ibv_mr>(EOPNOTSUPP);  // no call has returned one
  if (given(kMrFd | kMrFdOffset)) return given(kMrBuffer) ? fail<ibv_mr>(EINVAL) : register_dmabuf(pd, attributes);
  if (!given(kMrAddress)) return fail<ibv_mr>(EINVAL);
  if (given(kMrBuffer)) {
    const auto* const buffer = reinterpret_cast<const Buffer*>(attributes.buffer);
    const int error = check_buffer(pd, buffer, attributes.address, attributes.length);
    if (error != 0) return fail<ibv_mr>(error);
  }
  if (!given(kMrIova)) return reg_mr(pd, attributes.address, attributes.length, attributes.access);
  return reg_mr_iova(pd, attributes.address, attributes.length, attributes.iova, attributes.access);
}

void* alloc_buf(ibv_pd* pd, std::size_t size, Buffer** buffer) {
  auto made = std::make_unique<Buffer>();
  made->pd = pd;
  made->context = pd->context;
  made->size = size;
  made->memory = static_cast<std::byte*>(allocate_memory(pd->context, std::max<std::size_t>(size, 1), false));
  if (made->memory == nullptr) return nullptr;
  buffers().insert(made.get());
  *buffer = made.release();
  return (*buffer)->memory;
}

void free_buf(Buffer* buffer) {
  if (!buffers().erase(buffer)) return;
  const std::unique_ptr<Buffer> owned(buffer);
  free_memory(owned->context, owned->memory, owned->size, false);
}

bool is_buffer(const Buffer* buffer) noexcept {
  return buffers().contains(buffer);
}

ibv_mr* reg_buf_mr(ibv_pd* pd, Buffer* buffer, void* address, std::size_t length, int access) {
  const int error = check_buffer(pd, buffer, address, length);
  return error == 0 ? reg_mr(pd, address, length, access) : fail<ibv_mr>(error);
}

int query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
  if (!SoftContext::from(context).identity().has_port(port)) return EINVAL;
  *speed = kPortSpeed;
  return 0;
}

}  // namespace rdmacomm::softdev
