// The verbs of protection domains and memory.
#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <new>
#include <vector>

#include "softdev/soft_context.h"
#include "softdev/soft_pd.h"
#include "softdev/soft_qp.h"
#include "softdev/soft_srq.h"
#include "softdev/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

struct SoftMr : ibv_mr {};

/// What pinning does on hardware: brings the pages in, and finds out whether the range is mapped, and writable
/// where it must be. 0, or an errno value.
int populate(void* address, std::size_t length, bool writable) {
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  auto* const first = reinterpret_cast<std::byte*>(start / kPage * kPage);
  const std::size_t span = (start % kPage + length + kPage - 1) / kPage * kPage;
  const int advice = writable ? MADV_POPULATE_WRITE : MADV_POPULATE_READ;
  if (madvise(first, 0, advice) == 0) return madvise(first, span, advice) == 0 ? 0 : EFAULT;
  // Linux before 5.14 has no such advice; mincore at least refuses what is not mapped.
  std::vector<unsigned char> present(span / kPage);
  return mincore(first, span, present.data()) == 0 ? 0 : EFAULT;
}

}  // namespace

ibv_pd* alloc_pd(ibv_context* context) {
  auto* pd = new (std::nothrow) SoftPd;
  if (pd == nullptr) return fail<ibv_pd>(ENOMEM);
  SoftContext& soft = SoftContext::from(context);
  pd->context = context;
  pd->number = soft.next_pd_number();
  pd->handle = pd->number;
  return pd;
}

int dealloc_pd(ibv_pd* pd) {
  SoftPd& soft = SoftPd::from(pd);
  if (soft.users.load() != 0) return EBUSY;
  delete &soft;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_RELAXED_ORDERING;
  const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if ((access & ~kKnown) != 0) return fail<ibv_mr>(EOPNOTSUPP);
  if (remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return fail<ibv_mr>(EINVAL);
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  if (length == 0 || start + length < start) return fail<ibv_mr>(EINVAL);

  auto mr = std::make_unique<SoftMr>();
  SoftContext& soft = SoftContext::from(pd->context);
  std::uint64_t offset = 0;
  const Arena arena = soft.memory().locate(address, length, offset);
  if (arena == Arena::kNone) {
    const int error = populate(address, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
    if (error != 0) return fail<ibv_mr>(error);
  }
  const std::uint32_t key = soft.registrations().add(SoftPd::from(pd).number, start, length,
                                                     static_cast<std::uint32_t>(access), arena, offset);
  if (key == 0) return fail<ibv_mr>(ENOMEM);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->handle = mr->lkey = mr->rkey = key;
  ++SoftPd::from(pd).users;
  return mr.release();
}

int dereg_mr(ibv_mr* mr) {
  SoftContext& soft = SoftContext::from(mr->context);
  soft.registrations().invalidate(mr->lkey);
  for (const auto& qp : soft.queue_pairs().all()) qp->expect_refusal(mr->lkey);
  soft.shared_receive_queues().for_each([mr](SoftSrq& srq) { srq.expect_refusal(mr->lkey); });
  soft.wait_until_idle();
  soft.registrations().recycle(mr->lkey);
  --SoftPd::from(mr->pd).users;
  delete static_cast<SoftMr*>(mr);
  return 0;
}

void* allocate_memory(ibv_context* context, std::size_t length, bool huge_pages) {
  return SoftContext::from(context).memory().allocate(length, huge_pages);
}

void free_memory(ibv_context* context, void* address, std::size_t /*length*/, bool /*huge_pages*/) {
  SoftContext::from(context).memory().free(address);
}

}  // namespace rdmacomm::softdev
