// The verbs of device memory: ibv_alloc_dm and the calls that belong to it.
#include <cerrno>
#include <cstring>
#include <memory>

#include "softdev/common/device_limits.h"
#include "softdev/memory/soft_dm.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::uint32_t kMaxLogAlignment = 12;  // a page

/// As on ConnectX, copies are in units of 4 bytes.
bool can_copy(const SoftDm& dm, std::uint64_t offset, std::size_t length) {
  return offset % 4 == 0 && length % 4 == 0 && dm.has(offset, length);
}

int copy_to(ibv_dm* dm, std::uint64_t offset, const void* from, std::size_t length) {
  const SoftDm& soft = SoftDm::from(dm);
  if (!can_copy(soft, offset, length)) return EFAULT;
  std::memcpy(soft.memory + offset, from, length);
  return 0;
}

int copy_from(void* to, ibv_dm* dm, std::uint64_t offset, std::size_t length) {
  const SoftDm& soft = SoftDm::from(dm);
  if (!can_copy(soft, offset, length)) return EFAULT;
  std::memcpy(to, soft.memory + offset, length);
  return 0;
}

}  // namespace

ibv_dm* alloc_dm(ibv_context* context, ibv_alloc_dm_attr* attributes) {
  if (const int error = device_error(context); error != 0) return fail<ibv_dm>(error);
  if (attributes->comp_mask != 0) return fail<ibv_dm>(EOPNOTSUPP);
  const bool fits = attributes->length != 0 && attributes->length <= kMaxDeviceMemory;
  if (!fits || attributes->log_align_req > kMaxLogAlignment) return fail<ibv_dm>(EINVAL);
  auto dm = std::make_unique<SoftDm>();
  dm->context = context;
  dm->memcpy_to_dm = copy_to;
  dm->memcpy_from_dm = copy_from;
  dm->size = attributes->length;
  dm->memory = static_cast<std::byte*>(allocate_memory(context, dm->size, false));
  return dm->memory == nullptr ? nullptr : dm.release();
}

int free_dm(ibv_dm* dm) {
  SoftDm& soft = SoftDm::from(dm);
  if (soft.users.load() != 0) return EBUSY;
  free_memory(dm->context, soft.memory, soft.size, false);
  delete &soft;
  return 0;
}

}  // namespace rdmacomm::softdev
