// The verbs of registrations: of application memory, under its own or other addresses (iova), and of dma-bufs.
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "softdev/common/newer_numbers.h"
#include "softdev/context/soft_context.h"
#include "softdev/memory/application_memory.h"
#include "softdev/memory/null_memory.h"
#include "softdev/memory/page_faults.h"
#include "softdev/memory/soft_mr.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/soft_qp.h"
#include "softdev/queues/soft_srq.h"
#include "softdev/verbs/soft_verbs.h"
#include "verbs/tool_access.h"

namespace rdmacomm::softdev {
namespace {

constexpr int kOfDmabufs =
    IBV_ACCESS_LOCAL_WRITE | IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
constexpr int kOfMemory = kOfDmabufs | IBV_ACCESS_MW_BIND | IBV_ACCESS_ZERO_BASED | IBV_ACCESS_ON_DEMAND |
                          IBV_ACCESS_HUGETLB | static_cast<int>(kAccessFlushGlobal);  // no memory is persistent

/// The application's request for a registration.
struct Wanted {
  ibv_pd* pd = nullptr;
  void* address = nullptr;
  std::size_t length = 0;
  std::uint64_t iova = 0;  ///< requests use it for `address`
  int access = 0;
};

/// Returns  0, or an errno value.
int check_range(std::uint64_t start, std::size_t length, std::uint64_t iova) {
  if (length == 0 || start + length < start || iova + length < iova) return EINVAL;
  // Source: ibv_reg_mr(3) for dma-bufs; Linux requires it for all memory. So an atomic has the same alignment under
  // both addresses.
  return iova % kPage == start % kPage ? 0 : EINVAL;
}

/// Returns  0, or an errno value.
int check_access(int access, int known) {
  const bool remote_change = (access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  // Optional bits are hints, for example IBV_ACCESS_RELAXED_ORDERING. A device ignores unknown ones.
  if ((access & ~known & ~static_cast<int>(IBV_ACCESS_OPTIONAL_RANGE)) != 0) return EOPNOTSUPP;
  if ((access & IBV_ACCESS_HUGETLB) != 0 && (access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
  return remote_change && (access & IBV_ACCESS_LOCAL_WRITE) == 0 ? EINVAL : 0;
}

bool pages_on_demand(int access) {
  return (access & IBV_ACCESS_ON_DEMAND) != 0;
}

/// The whole address space of the process, by an on-demand registration.
bool is_implicit(const Wanted& wanted) {
  return wanted.address == nullptr && wanted.length == SIZE_MAX && pages_on_demand(wanted.access);
}

/// The table entry for memory at `memory` in this process.
Registration registration_of(const Wanted& wanted, std::uint64_t memory) {
  Registration registration;
  registration.pd = SoftPd::from(wanted.pd).number;
  registration.access = static_cast<std::uint32_t>(wanted.access);
  registration.address = wanted.iova;
  registration.length = wanted.length;
  registration.shift = memory - wanted.iova;
  // The second lookup (find_local_range) finds these, and leads to the code that translates addresses and loads pages.
  if (registration.shift != 0 || pages_on_demand(wanted.access)) registration.pd |= kWithIova;
  return registration;
}

/// The same for application memory, after all checks. Returns 0, or an errno value.
int check_in(Wanted& wanted, Registration& registration) {
  const auto start = reinterpret_cast<std::uint64_t>(wanted.address);
  const bool zero_based = (wanted.access & IBV_ACCESS_ZERO_BASED) != 0;
  if (zero_based) wanted.iova = 0;
  int error = check_access(wanted.access, kOfMemory);
  if (error == 0) error = check_range(start, wanted.length, zero_based ? start : wanted.iova);
  if (error != 0) return error;
  registration = registration_of(wanted, start);
  if (is_implicit(wanted)) return 0;
  SharedMemory& memory = SoftContext::from(wanted.pd->context).memory();
  registration.arena = memory.locate(wanted.address, wanted.length, registration.arena_offset);
  // An on-demand registration means the memory that is mapped at the time of each request, so it has no fixed place.
  if (registration.arena != Arena::kNone || pages_on_demand(wanted.access)) return 0;
  const Reach reach = locate_own_memory(wanted.address, wanted.length, registration.arena_offset);
  if (reach == Reach::kMapped) registration.arena = Arena::kOwn;
  error = load_pages(wanted.address, wanted.length, (wanted.access & IBV_ACCESS_LOCAL_WRITE) != 0);
  if (error == 0) reach_counts().add(reach, wanted.length);
  return error;
}

/// Counts memory that a NIC would lock. Pages that are loaded on demand are not locked. Returns 0, or an errno value.
int count_locked(const Wanted& wanted, LockedMemory& locked) {
  if (pages_on_demand(wanted.access) || !SoftContext::from(wanted.pd->context).limits_memory()) return 0;
  return LockedMemory::add(reinterpret_cast<std::uint64_t>(wanted.address), wanted.length, locked);
}

/// Makes the handle of a checked registration and enters it into the table.
ibv_mr* enter(const Wanted& wanted, const Registration& registration, Mapping dmabuf) {
  auto mr = std::make_unique<SoftMr>();
  mr->access = wanted.access;
  mr->iova = wanted.iova;
  mr->dmabuf = std::move(dmabuf);
  const std::uint32_t key = SoftContext::from(wanted.pd->context).registrations().add(registration);
  if (key == 0) return fail<ibv_mr>(ENOMEM);
  mr->made_at = SoftContext::from(wanted.pd->context).stragglers().moment();
  mr->context = wanted.pd->context;
  mr->pd = wanted.pd;
  mr->addr = wanted.address;
  mr->length = wanted.length;
  mr->handle = mr->lkey = mr->rkey = key;
  ++SoftPd::from(wanted.pd).users;
  return mr.release();
}

/// Maps the part of a dma-buf from the start of the page that contains `offset`. Returns 0, or an errno value.
int map_dmabuf(int fd, std::uint64_t offset, std::size_t length, bool writable, Mapping& mapping) {
  struct stat file {};
  if (fstat(fd, &file) != 0) return errno;
  const bool has_size = S_ISREG(file.st_mode) || file.st_size != 0;
  if (has_size && offset + length > static_cast<std::uint64_t>(file.st_size)) return EINVAL;
  const std::uint64_t inside = offset % kPage;
  mapping = Mapping(fd, offset - inside, length + inside, writable);
  if (!mapping.empty()) return 0;
  // All other arguments were checked, so its exporter does not allow processes to map it.
  return errno == ENODEV || errno == EINVAL ? EOPNOTSUPP : errno;
}

/// How initiators reach a dma-buf's memory. Device memory has no pages that system calls could access.
Arena arena_of_dmabuf(void* memory) {
  std::byte first{};
  const iovec here{&first, 1};
  const iovec there{memory, 1};
  const bool no_pages = process_vm_readv(getpid(), &here, 1, &there, 1, 0) < 0 && errno == EFAULT;
  return no_pages ? Arena::kServed : Arena::kNone;
}

/// After this returns, the registration with this key is not used any more. Returns false: some Stragglers may still
/// use it.
bool take_out_of_service(SoftContext& soft, std::uint32_t key) {
  soft.registrations().invalidate(key);
  for (const auto& qp : soft.queue_pairs().all()) qp->expect_refusal(key);
  soft.shared_receive_queues().for_each([key](SoftSrq& srq) { srq.expect_refusal(key); });
  return soft.wait_until_idle();
}

/// result  IBV_REREG_MR_ERR_INPUT: the registration is as it was; IBV_REREG_MR_ERR_CMD: it must not be used
int refuse_reregistration(int error, int result = IBV_REREG_MR_ERR_INPUT) {
  errno = error;
  return result;
}

}  // namespace

ibv_mr* reg_mr_iova(ibv_pd* pd, void* address, std::size_t length, std::uint64_t iova, int access) {
  Wanted wanted{pd, address, length, iova, access};
  Registration registration;
  LockedMemory locked;
  const bool is_of_tool = (access & verbs::kAccessOfTool) != 0;
  int error = is_of_tool ? device_error(pd->context) : refusal(pd->context, FaultCall::kRegMr);
  if (error == 0) error = check_in(wanted, registration);
  if (error == 0 && !is_of_tool) error = count_locked(wanted, locked);
  if (error != 0) return fail<ibv_mr>(error);
  ibv_mr* const mr = enter(wanted, registration, Mapping());
  if (mr != nullptr) SoftMr::from(mr).locked = std::move(locked);
  return mr;
}

ibv_mr* reg_mr(ibv_pd* pd, void* address, std::size_t length, int access) {
  return reg_mr_iova(pd, address, length, reinterpret_cast<std::uint64_t>(address), access);
}

ibv_mr* reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd, int access) {
  const bool writable = (access & IBV_ACCESS_LOCAL_WRITE) != 0;
  Mapping mapping;
  int error = refusal(pd->context, FaultCall::kRegMr);
  if (error == 0) error = check_access(access, kOfDmabufs);
  if (error == 0) error = check_range(offset, length, iova);
  if (error == 0) error = map_dmabuf(fd, offset, length, writable, mapping);
  if (error != 0) return fail<ibv_mr>(error);
  std::byte* const memory = mapping.data() + offset % kPage;
  const Wanted wanted{pd, reinterpret_cast<void*>(offset), length, iova, access};
  Registration registration = registration_of(wanted, reinterpret_cast<std::uint64_t>(memory));
  registration.arena = arena_of_dmabuf(memory);
  if (registration.arena == Arena::kNone) error = load_pages(memory, length, writable);
  return error == 0 ? enter(wanted, registration, std::move(mapping)) : fail<ibv_mr>(error);
}

ibv_mr* reg_dm_mr(ibv_pd* pd, ibv_dm* dm, std::uint64_t offset, std::size_t length, unsigned access) {
  if (const int error = device_error(pd->context); error != 0) return fail<ibv_mr>(error);
  SoftDm& memory = SoftDm::from(dm);
  const auto flags = static_cast<int>(access);
  if (pd->context != dm->context || !memory.has(offset, length)) return fail<ibv_mr>(EINVAL);
  // As in the kernel.
  if ((flags & IBV_ACCESS_ZERO_BASED) == 0 || pages_on_demand(flags)) return fail<ibv_mr>(EINVAL);
  Wanted wanted{pd, memory.memory + offset, length, 0, flags};
  Registration registration = registration_of(wanted, reinterpret_cast<std::uint64_t>(wanted.address));
  // Unlike other registrations, one of device memory may be empty.
  const int error = length == 0 ? check_access(flags, kOfMemory) : check_in(wanted, registration);
  if (error != 0) return fail<ibv_mr>(error);
  ibv_mr* const mr = enter(wanted, registration, {});
  if (mr == nullptr) return nullptr;
  mr->addr = nullptr;  // programs address it from 0
  SoftMr::from(mr).device_memory = &memory;
  ++memory.users;
  return mr;
}

ibv_mr* alloc_null_mr(ibv_pd* pd) {
  if (const int error = device_error(pd->context); error != 0) return fail<ibv_mr>(error);
  const Wanted wanted{pd, nullptr, SIZE_MAX, 0, 0};
  if (null_memory(false) == nullptr || null_memory(true) == nullptr) return fail<ibv_mr>(ENOMEM);
  ibv_mr* const mr = enter(wanted, null_registration(SoftPd::from(pd).number), {});
  if (mr == nullptr) return nullptr;
  SoftMr::from(mr).is_null = true;
  --SoftPd::from(pd).users;  // perftest deallocates the domain first, as the driver of ConnectX permits
  return mr;
}

int rereg_mr(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  if (const int error = device_error(mr->context); error != 0)
    return refuse_reregistration(error, IBV_REREG_MR_ERR_CMD);
  const auto changes = [flags](int what) { return (flags & what) != 0; };
  constexpr int kKnown = IBV_REREG_MR_CHANGE_TRANSLATION | IBV_REREG_MR_CHANGE_PD | IBV_REREG_MR_CHANGE_ACCESS;
  if (flags == 0 || changes(~kKnown)) return refuse_reregistration(EINVAL);
  SoftMr& soft_mr = SoftMr::from(mr);
  SoftContext& soft = SoftContext::from(mr->context);
  const bool is_special = !soft_mr.dmabuf.empty() || soft_mr.device_memory != nullptr || soft_mr.is_null;
  if (is_special) return refuse_reregistration(EINVAL);  // like libibverbs
  if (soft.windows().any_bound_to(soft_mr)) return refuse_reregistration(EBUSY);
  Wanted wanted{mr->pd, mr->addr, mr->length, soft_mr.iova, soft_mr.access};
  if (changes(IBV_REREG_MR_CHANGE_PD)) wanted.pd = pd;
  if (wanted.pd == nullptr) return refuse_reregistration(EINVAL);
  if (changes(IBV_REREG_MR_CHANGE_ACCESS)) wanted.access = access;
  if (changes(IBV_REREG_MR_CHANGE_TRANSLATION)) {
    wanted.address = address;
    wanted.length = length;
    wanted.iova = reinterpret_cast<std::uint64_t>(address);
  }
  Registration registration;
  LockedMemory locked;
  int error = check_in(wanted, registration);
  if (error == 0) error = count_locked(wanted, locked);
  if (error != 0) return refuse_reregistration(error);
  // If it fails, its place may still be read, and is not reused with the same key.
  if (!take_out_of_service(soft, mr->lkey)) return refuse_reregistration(EBUSY, IBV_REREG_MR_ERR_CMD);
  soft.registrations().replace(mr->lkey, registration);
  ++SoftPd::from(wanted.pd).users;
  --SoftPd::from(mr->pd).users;
  mr->pd = wanted.pd;
  mr->addr = wanted.address;
  mr->length = wanted.length;
  soft_mr.iova = wanted.iova;
  soft_mr.access = wanted.access;
  soft_mr.locked = std::move(locked);
  return 0;
}

int advise_mr(ibv_pd* pd, ibv_advise_mr_advice advice, std::uint32_t flags, ibv_sge* slices, std::uint32_t count) {
  if (const int error = device_error(pd->context); error != 0) return error;
  const bool writes = advice == IBV_ADVISE_MR_ADVICE_PREFETCH_WRITE;
  constexpr int kNoFault = 2;  // IBV_ADVISE_MR_ADVICE_PREFETCH_NO_FAULT, since release 32
  if (!writes && advice != IBV_ADVISE_MR_ADVICE_PREFETCH && static_cast<int>(advice) != kNoFault) return EOPNOTSUPP;
  if ((flags & ~std::uint32_t{IBV_ADVISE_MR_FLAG_FLUSH}) != 0 || count == 0) return EINVAL;
  const auto table = SoftContext::from(pd->context).registrations().entries();
  for (const ibv_sge& slice : std::span(slices, count)) {
    const MrEntry* const entry =
        find_local_range(table, slice.lkey, SoftPd::from(pd).number, slice.addr, slice.length, 0);
    if (entry == nullptr) return ENOENT;
    if ((entry->access & IBV_ACCESS_ON_DEMAND) == 0) return EINVAL;
    if (writes && (entry->access & IBV_ACCESS_LOCAL_WRITE) == 0) return EPERM;
  }
  if (static_cast<int>(advice) == kNoFault) return 0;  // only pages that are present, which need no work
  for (const ibv_sge& slice : std::span(slices, count)) {
    const MrEntry* const entry =
        find_local_range(table, slice.lkey, SoftPd::from(pd).number, slice.addr, slice.length, 0);
    const auto* const memory = reinterpret_cast<const std::byte*>(entry == nullptr ? 0 : slice.addr + entry->shift);
    const int error = entry == nullptr ? ENOENT : load_pages(memory, slice.length, writes);
    if (error != 0) return error;
  }
  return 0;
}

int dereg_mr(ibv_mr* mr) {
  SoftContext& soft = SoftContext::from(mr->context);
  SoftMr& soft_mr = SoftMr::from(mr);
  if (soft.windows().any_bound_to(soft_mr)) return EBUSY;
  (void)take_out_of_service(soft, mr->lkey);
  MrTable& table = soft.registrations();
  soft.stragglers().defer(soft_mr.made_at, [&table, key = mr->lkey] { table.recycle(key); });
  if (!soft_mr.is_null) --SoftPd::from(mr->pd).users;
  if (soft_mr.device_memory != nullptr) --soft_mr.device_memory->users;
  delete &soft_mr;
  return 0;
}

}  // namespace rdmacomm::softdev
