// The verbs of protection domains, and of memory that peers can map.
#include <cerrno>
#include <new>

#include "softdev/context/soft_context.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {

ibv_pd* alloc_pd(ibv_context* context) {
  if (const int error = refusal(context, FaultCall::kAllocPd); error != 0) return fail<ibv_pd>(error);
  auto* pd = new (std::nothrow) SoftPd;
  if (pd == nullptr) return fail<ibv_pd>(ENOMEM);
  SoftContext& soft = SoftContext::from(context);
  pd->context = context;
  pd->number = soft.next_pd_number();
  pd->handle = pd->number;
  return pd;
}

ibv_pd* alloc_parent_domain(ibv_context* context, ibv_parent_domain_init_attr* attributes) {
  if (const int error = refusal(context, FaultCall::kAllocPd); error != 0) return fail<ibv_pd>(error);
  if (attributes->pd == nullptr) return fail<ibv_pd>(EINVAL);
  // An application may bring its own allocators. They are not called, because queues are in memory that peers map. Nor
  // does the permission to allocate unprotected memory on a confidential host matter (bit 2, since release 64): soft0
  // needs no such memory.
  constexpr std::uint32_t kUnprotected = 1 << 2;
  constexpr std::uint32_t kKnown =
      IBV_PARENT_DOMAIN_INIT_ATTR_ALLOCATORS | IBV_PARENT_DOMAIN_INIT_ATTR_PD_CONTEXT | kUnprotected;
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
  if (const int error = device_error(context); error != 0) return fail<ibv_td>(error);
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

void* allocate_memory(ibv_context* context, std::size_t length, bool huge_pages) {
  return SoftContext::from(context).allocate_memory(length, huge_pages);
}

void free_memory(ibv_context* context, void* address, std::size_t /*length*/, bool /*huge_pages*/) {
  SoftContext::from(context).free_memory(address);
}

}  // namespace rdmacomm::softdev
