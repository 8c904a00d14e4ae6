// The verbs of protection domains and memory.
#include <sys/mman.h>

#include <cerrno>
#include <memory>
#include <new>
#include <vector>

#include "softdev/soft_context.h"
#include "softdev/soft_mr.h"
#include "softdev/soft_pd.h"
#include "softdev/soft_qp.h"
#include "softdev/soft_srq.h"
#include "softdev/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

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

/// 0, or an errno value.
int check_registration(const void* address, std::size_t length, int access) {
  constexpr int kKnown = IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ |
                         IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_MW_BIND | IBV_ACCESS_RELAXED_ORDERING;
  const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  if ((access & ~kKnown) != 0) return EOPNOTSUPP;
  if (remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0) return EINVAL;
  const auto start = reinterpret_cast<std::uintptr_t>(address);
  return length == 0 || start + length < start ? EINVAL : 0;
}

/// What is entered for memory that can be registered. 0, or an errno value.
int registration_of(ibv_pd* pd, void* address, std::size_t length, int access, Registration& registration) {
  int error = check_registration(address, length, access);
  if (error != 0) return error;
  registration.pd = SoftPd::from(pd).number;
  registration.access = static_cast<std::uint32_t>(access);
  registration.address = reinterpret_cast<std::uintptr_t>(address);
  registration.length = length;
  registration.arena = SoftContext::from(pd->context).memory().locate(address, length, registration.arena_offset);
  if (registration.arena == Arena::kNone) error = populate(address, length, (access & IBV_ACCESS_LOCAL_WRITE) != 0);
  return error;
}

/// From the return on nobody uses the registration with this key.
void take_out_of_service(SoftContext& soft, std::uint32_t key) {
  soft.registrations().invalidate(key);
  for (const auto& qp : soft.queue_pairs().all()) qp->expect_refusal(key);
  soft.shared_receive_queues().for_each([key](SoftSrq& srq) { srq.expect_refusal(key); });
  soft.wait_until_idle();
}

int refuse_reregistration(int error) {
  errno = error;
  return IBV_REREG_MR_ERR_INPUT;
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

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  if (attributes->pd == nullptr) return fail<ibv_pd>(EINVAL);
  // Queues lie in memory that peers map: there is no use for an allocator of the application's.
  constexpr std::uint32_t kKnown = IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT;
  if ((attributes->comp_mask & ~kKnown) != 0) return fail<ibv_pd>(EOPNOTSUPP);
  auto* pd = new (std::nothrow) SoftPd;
  if (pd == nullptr) return fail<ibv_pd>(ENOMEM);
  pd->context = context;
  pd->parent = &SoftPd::from(attributes->pd);
  pd->number = pd->handle = pd->parent->number;
  ++pd->parent->users;
  if (attributes->td != nullptr) {
    pd->thread_domain = &SoftTd::from(attributes->td);
    ++pd->thread_domain->users;
  }
  return pd;
}

int dealloc_pd(ibv_pd* pd) {
  SoftPd& soft = SoftPd::from(pd);
  if (soft.users.load() != 0) return EBUSY;
  if (soft.parent != nullptr) --soft.parent->users;
  if (soft.thread_domain != nullptr) --soft.thread_domain->users;
  delete &soft;
  return 0;
}

ibv_td* alloc_td(ibv_context* context, ibv_td_init_attr* attributes) {
  if (attributes->comp_mask != 0) return fail<ibv_td>(EINVAL);
  auto* td = new (std::nothrow) SoftTd;
  if (td == nullptr) return fail<ibv_td>(ENOMEM);
  td->context = context;
  return td;
}

int dealloc_td(ibv_td* td) {
  SoftTd& soft = SoftTd::from(td);
  if (soft.users.load() != 0) return EBUSY;
  delete &soft;
  return 0;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  Registration registration;
  const int error = registration_of(pd, address, length, access, registration);
  if (error != 0) return fail<ibv_mr>(error);
  auto mr = std::make_unique<SoftMr>();
  mr->access = access;
  const std::uint32_t key = SoftContext::from(pd->context).registrations().add(registration);
  if (key == 0) return fail<ibv_mr>(ENOMEM);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->handle = mr->lkey = mr->rkey = key;
  ++SoftPd::from(pd).users;
  return mr.release();
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  const auto changes = [flags](int what) { return (flags & what) != 0; };
  constexpr int kKnown = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (flags == 0 || changes(~kKnown)) return refuse_reregistration(EINVAL);
  SoftMr& soft_mr = SoftMr::from(mr);
  SoftContext& soft = SoftContext::from(mr->context);
  if (soft.windows().any_bound_to(soft_mr)) return refuse_reregistration(EBUSY);
  if (!changes(IBV_REREG_MR_CHANGE_PD)) pd = mr->pd;
  if (pd == nullptr) return refuse_reregistration(EINVAL);
  if (!changes(IBV_REREG_MR_CHANGE_ACCESS)) access = soft_mr.access;
  if (!changes(IBV_REREG_MR_CHANGE_TRANSLATION)) {
    address = mr->addr;
    length = mr->length;
  }
  Registration registration;
  const int error = registration_of(pd, address, length, access, registration);
  if (error != 0) return refuse_reregistration(error);
  take_out_of_service(soft, mr->lkey);
  soft.registrations().replace(mr->lkey, registration);
  ++SoftPd::from(pd).users;
  --SoftPd::from(mr->pd).users;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  soft_mr.access = access;
  return 0;
}

int dereg_mr(ibv_mr* mr) {
  SoftContext& soft = SoftContext::from(mr->context);
  SoftMr& soft_mr = SoftMr::from(mr);
  if (soft.windows().any_bound_to(soft_mr)) return EBUSY;
  take_out_of_service(soft, mr->lkey);
  soft.registrations().recycle(mr->lkey);
  --SoftPd::from(mr->pd).users;
  delete &soft_mr;
  return 0;
}

void* allocate_memory(ibv_context* context, std::size_t length, bool huge_pages) {
  return SoftContext::from(context).memory().allocate(length, huge_pages);
}

void free_memory(ibv_context* context, void* address, std::size_t /*length*/, bool /*huge_pages*/) {
  SoftContext::from(context).memory().free(address);
}

}  // namespace rdmacomm::softdev
