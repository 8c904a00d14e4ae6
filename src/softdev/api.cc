// The verbs of soft0, one function each, in the errno dialects of libibverbs.
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>
#include <new>
#include <vector>

#include "rdmacomm/softdev/softdev.h"
#include "softdev/device_limits.h"
#include "softdev/gid_table.h"
#include "softdev/soft_context.h"
#include "softdev/soft_cq.h"
#include "softdev/soft_device.h"
#include "softdev/soft_qp.h"

namespace rdmacomm::softdev {
namespace {

struct SoftPd : ibv_pd {
  std::uint32_t number = 0;
  std::atomic<int> users{0};
};
struct SoftMr : ibv_mr {};

SoftPd& from(ibv_pd* pd) {
  return *static_cast<SoftPd*>(pd);
}
SoftChannel& from(ibv_comp_channel* channel) {
  return *static_cast<SoftChannel*>(channel);
}

template <typename T>
T* fail(int error) {
  errno = error;
  return nullptr;
}

// ---- Devices

/// The list and its one device; contexts keep the device beyond the list.
struct ListedDevice {
  ibv_device* list[2] = {nullptr, nullptr};
  std::shared_ptr<SoftDevice> device = std::make_shared<SoftDevice>();
};

ibv_device** get_device_list(int* count) {
  auto* listed = new (std::nothrow) ListedDevice;
  if (listed == nullptr) return fail<ibv_device*>(ENOMEM);
  listed->list[0] = listed->device.get();
  if (count != nullptr) *count = 1;
  return listed->list;
}

void free_device_list(ibv_device** list) {
  delete reinterpret_cast<ListedDevice*>(list);
}

ibv_context* open_device(ibv_device* device) {
  SoftContext* context = SoftContext::open(static_cast<SoftDevice*>(device)->shared_from_this());
  return context == nullptr ? nullptr : context->verbs();
}

int close_device(ibv_context* context) {
  SoftContext& soft = SoftContext::from(context);
  if (soft.objects.load() != 0) return EBUSY;
  delete &soft;
  return 0;
}

int query_device(ibv_context* /*context*/, ibv_device_attr* attributes) {
  describe_device(*attributes);
  return 0;
}

int query_device_ex(ibv_context* /*context*/, ibv_device_attr_ex* attributes) {
  *attributes = {};
  describe_device(attributes->orig_attr);
  attributes->phys_port_cnt_ex = attributes->orig_attr.phys_port_cnt;
  return 0;
}

int query_port(ibv_context* /*context*/, std::uint8_t port, ibv_port_attr* attributes) {
  if (port != 1) return EINVAL;
  describe_port(*attributes);
  return 0;
}

int query_gid_entry(ibv_context* /*context*/, std::uint32_t port, std::uint32_t index, ibv_gid_entry* entry) {
  const auto table = gid_table();
  if (port != 1) return EINVAL;
  if (index >= table.size()) return ENODATA;
  *entry = table[index];
  return 0;
}

int query_pkey(ibv_context* /*context*/, std::uint8_t port, int index, __be16* pkey) {
  if (port != 1 || index != 0) {
    errno = EINVAL;
    return -1;
  }
  *pkey = 0xffff;
  return 0;
}

// ---- Protection domains and memory

ibv_pd* alloc_pd(ibv_context* context) {
  auto* pd = new (std::nothrow) SoftPd;
  if (pd == nullptr) return fail<ibv_pd>(ENOMEM);
  SoftContext& soft = SoftContext::from(context);
  pd->context = context;
  pd->number = soft.next_pd_number();
  pd->handle = pd->number;
  ++soft.objects;
  return pd;
}

int dealloc_pd(ibv_pd* pd) {
  SoftPd& soft = from(pd);
  if (soft.users.load() != 0) return EBUSY;
  --SoftContext::from(pd->context).objects;
  delete &soft;
  return 0;
}

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
  const std::uint32_t key =
      soft.registrations().add(from(pd).number, start, length, static_cast<std::uint32_t>(access), arena, offset);
  if (key == 0) return fail<ibv_mr>(ENOMEM);
  mr->context = pd->context;
  mr->pd = pd;
  mr->addr = address;
  mr->length = length;
  mr->handle = mr->lkey = mr->rkey = key;
  ++from(pd).users;
  return mr.release();
}

int dereg_mr(ibv_mr* mr) {
  SoftContext& soft = SoftContext::from(mr->context);
  soft.registrations().invalidate(mr->lkey);
  soft.wait_until_idle();
  soft.registrations().recycle(mr->lkey);
  --from(mr->pd).users;
  delete static_cast<SoftMr*>(mr);
  return 0;
}

void* allocate_memory(ibv_context* context, std::size_t length, bool huge_pages) {
  return SoftContext::from(context).memory().allocate(length, huge_pages);
}

void free_memory(ibv_context* context, void* address, std::size_t /*length*/, bool /*huge_pages*/) {
  SoftContext::from(context).memory().free(address);
}

// ---- Completion queues

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  auto channel = std::make_unique<SoftChannel>();
  channel->context = context;
  channel->refcnt = 0;
  channel->fd = eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE);
  if (channel->fd < 0) return nullptr;
  ++SoftContext::from(context).objects;
  return channel.release();
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  SoftChannel& soft = from(channel);
  {
    const std::scoped_lock lock(soft.mutex);
    if (!soft.queues.empty()) return EBUSY;
  }
  close(soft.fd);
  --SoftContext::from(channel->context).objects;
  delete &soft;
  return 0;
}

ibv_cq* create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int vector) {
  if (depth < 1 || depth > kMaxCompletions || vector != 0) return fail<ibv_cq>(EINVAL);
  SoftContext& soft = SoftContext::from(context);
  SharedBlock block = soft.segment().allocate(sizeof(CqShared));
  if (block.mapping.empty()) return nullptr;
  auto* const events = static_cast<SoftChannel*>(channel);
  auto* cq = new SoftCq(soft, std::move(block), depth, cq_context, events);
  if (events != nullptr) {
    const std::scoped_lock lock(events->mutex);
    events->queues.push_back(cq);
    ++events->refcnt;
  }
  ++soft.objects;
  return cq;
}

int destroy_cq(ibv_cq* cq) {
  SoftCq& soft = SoftCq::from(cq);
  if (soft.in_use()) return EBUSY;
  if (cq->channel != nullptr) {
    SoftChannel& events = from(cq->channel);
    {
      const std::scoped_lock lock(events.mutex);
      std::erase(events.queues, &soft);
      --events.refcnt;
    }
    soft.retire_events();
  }
  SoftContext& context = SoftContext::from(cq->context);
  context.segment().free(soft.take_block());
  --context.objects;
  delete &soft;
  return 0;
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  for (;;) {
    std::uint64_t one = 0;
    if (read(channel->fd, &one, sizeof(one)) != sizeof(one)) return -1;
    SoftCq* const fired = from(channel).take_event();
    if (fired == nullptr) continue;  // its queue was destroyed since
    *cq = fired;
    *cq_context = fired->cq_context;
    return 0;
  }
}

void ack_cq_events(ibv_cq* cq, unsigned count) {
  SoftCq::from(cq).acknowledge(count);
}

// ---- Queue pairs

int check_capabilities(const ibv_qp_init_attr& init) {
  const ibv_qp_cap& cap = init.cap;
  if (init.qp_type != IBV_QPT_RC || init.srq != nullptr) return EOPNOTSUPP;
  if (init.send_cq == nullptr || init.recv_cq == nullptr) return EINVAL;
  const bool too_much = cap.max_send_wr > kMaxQueueDepth || cap.max_recv_wr > kMaxQueueDepth ||
                        cap.max_send_sge > kMaxSge || cap.max_recv_sge > kMaxSge ||
                        cap.max_inline_data > kMaxInlineBytes;
  return too_much ? EINVAL : 0;
}

ibv_qp* create_qp(ibv_pd* pd, ibv_qp_init_attr* init) {
  const int wrong = check_capabilities(*init);
  if (wrong != 0) return fail<ibv_qp>(wrong);
  SoftContext& soft = SoftContext::from(pd->context);
  const int error = soft.ensure_threads();
  if (error != 0) return fail<ibv_qp>(error);
  SharedBlock block = soft.segment().allocate(QpView::bytes(SoftQp::recv_entries(init->cap), init->cap.max_recv_sge));
  if (block.mapping.empty()) return nullptr;
  UniqueFd listener;
  const std::uint32_t qpn = soft.queue_pairs().take_number(listener);
  if (qpn == 0) {
    const int reason = errno;
    soft.segment().free(std::move(block));
    return fail<ibv_qp>(reason);
  }
  auto qp = std::make_shared<SoftQp>(soft, std::move(block), qpn, from(pd).number, *init);
  qp->pd = pd;
  soft.queue_pairs().insert(qp);
  SoftCq::from(init->send_cq).attach_sender(*qp);
  SoftCq::from(init->recv_cq).attach_receiver(*qp);
  if (listener) soft.server().add_listener(std::move(listener));
  ++from(pd).users;
  return qp.get();
}

int modify_qp(ibv_qp* qp, ibv_qp_attr* attributes, int mask) {
  return SoftQp::from(qp).modify(*attributes, mask);
}

int query_qp(ibv_qp* qp, ibv_qp_attr* attributes, int /*mask*/, ibv_qp_init_attr* init) {
  SoftQp::from(qp).query(*attributes, *init);
  return 0;
}

int destroy_qp(ibv_qp* qp) {
  SoftContext& soft = SoftContext::from(qp->context);
  SoftQp& target = SoftQp::from(qp);
  target.destroy();
  const auto kept = soft.queue_pairs().remove(qp->qp_num);
  soft.events().retire(target);
  --from(qp->pd).users;
  return 0;
}

// soft0 has no shared receive queues, and says so: max_srq is 0.
ibv_srq* create_srq(ibv_pd* /*pd*/, ibv_srq_init_attr* /*attributes*/) {
  return fail<ibv_srq>(EOPNOTSUPP);
}
int modify_srq(ibv_srq* /*srq*/, ibv_srq_attr* /*attributes*/, int /*mask*/) {
  return EOPNOTSUPP;
}
int query_srq(ibv_srq* /*srq*/, ibv_srq_attr* /*attributes*/) {
  return EOPNOTSUPP;
}
int destroy_srq(ibv_srq* /*srq*/) {
  return EOPNOTSUPP;
}

int get_async_event(ibv_context* context, ibv_async_event* event) {
  return SoftContext::from(context).events().get(*event);
}

void ack_async_event(ibv_async_event* event) {
  SoftContext::from(event->element.qp->context).events().acknowledge(*event);
}

constexpr verbs::Api kApi = {
    .name = "softdev",
    .get_device_list = get_device_list,
    .free_device_list = free_device_list,
    .open_device = open_device,
    .close_device = close_device,
    .query_device = query_device,
    .query_device_ex = query_device_ex,
    .query_port = query_port,
    .query_gid_entry = query_gid_entry,
    .query_pkey = query_pkey,
    .alloc_pd = alloc_pd,
    .dealloc_pd = dealloc_pd,
    .reg_mr = reg_mr,
    .dereg_mr = dereg_mr,
    .create_comp_channel = create_comp_channel,
    .destroy_comp_channel = destroy_comp_channel,
    .create_cq = create_cq,
    .destroy_cq = destroy_cq,
    .get_cq_event = get_cq_event,
    .ack_cq_events = ack_cq_events,
    .create_qp = create_qp,
    .modify_qp = modify_qp,
    .query_qp = query_qp,
    .destroy_qp = destroy_qp,
    .create_srq = create_srq,
    .modify_srq = modify_srq,
    .query_srq = query_srq,
    .destroy_srq = destroy_srq,
    .get_async_event = get_async_event,
    .ack_async_event = ack_async_event,
    .allocate_memory = allocate_memory,
    .free_memory = free_memory,
};

}  // namespace

const verbs::Api& api() noexcept {
  return kApi;
}

}  // namespace rdmacomm::softdev
