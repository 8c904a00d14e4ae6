// The verbs of completion queues and channels.
#include <sys/eventfd.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <memory>

#include "base/unique_fd.h"
#include "softdev/common/device_limits.h"
#include "softdev/context/soft_context.h"
#include "softdev/memory/soft_pd.h"
#include "softdev/queues/soft_cq.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev {
namespace {

SoftChannel& from(ibv_comp_channel* channel) {
  return *static_cast<SoftChannel*>(channel);
}

}  // namespace

ibv_comp_channel* create_comp_channel(ibv_context* context) {
  if (const int error = refusal(context, FaultCall::kCreateCompChannel); error != 0)
    return fail<ibv_comp_channel>(error);
  auto channel = std::make_unique<SoftChannel>();
  channel->context = context;
  channel->refcnt = 0;
  channel->number = SoftContext::from(context).next_channel_number();
  channel->fd = above_standard_streams(eventfd(0, EFD_CLOEXEC | EFD_SEMAPHORE));
  if (channel->fd < 0) return nullptr;
  return channel.release();
}

int destroy_comp_channel(ibv_comp_channel* channel) {
  SoftChannel& soft = from(channel);
  {
    const std::scoped_lock lock(soft.mutex);
    if (!soft.queues.empty()) return EBUSY;
  }
  close(soft.fd);
  delete &soft;
  return 0;
}

namespace {

SoftCq* make_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int vector) {
  if (depth < 1 || depth > kMaxCompletions || vector != 0) return fail<SoftCq>(EINVAL);
  if (const int error = refusal(context, FaultCall::kCreateCq); error != 0) return fail<SoftCq>(error);
  SoftContext& soft = SoftContext::from(context);
  SharedBlock block = soft.segment().allocate(sizeof(CqShared));
  if (block.mapping.empty()) return nullptr;
  auto* const events = static_cast<SoftChannel*>(channel);
  auto* cq = new SoftCq(soft.premises(), std::move(block), depth, cq_context, events);
  if (events != nullptr) {
    const std::scoped_lock lock(events->mutex);
    events->queues.push_back(cq);
    ++events->refcnt;
  }
  if (soft.faults() != nullptr && soft.faults()->reorders()) cq->reorder();
  soft.completion_queues().insert(*cq);
  return cq;
}

}  // namespace

ibv_cq* create_cq(ibv_context* context, int depth, void* cq_context, ibv_comp_channel* channel, int vector) {
  SoftCq* const cq = make_cq(context, depth, cq_context, channel, vector);
  return cq == nullptr ? nullptr : cq->verbs();
}

ibv_cq_ex* create_cq_ex(ibv_context* context, ibv_cq_init_attr_ex* init) {
  // Single-threaded use makes no difference here.
  constexpr std::uint32_t kFlags = IBV_CREATE_CQ_ATTR_SINGLE_THREADED | IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN;
  const bool has_flags = (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_FLAGS) != 0;
  constexpr std::uint32_t kKnown = IBV_CQ_INIT_ATTR_MASK_FLAGS | IBV_CQ_INIT_ATTR_MASK_PD;
  const bool known = (init->comp_mask & ~kKnown) == 0 && (!has_flags || (init->flags & ~kFlags) == 0) &&
                     (init->wc_flags & ~CqCursor::kFields) == 0;
  if (!known) return fail<ibv_cq_ex>(EOPNOTSUPP);
  const bool has_domain = (init->comp_mask & IBV_CQ_INIT_ATTR_MASK_PD) != 0;
  if (init->cqe > kMaxCompletions) return fail<ibv_cq_ex>(EINVAL);
  if (has_domain && (init->parent_domain == nullptr || SoftPd::from(init->parent_domain).parent == nullptr))
    return fail<ibv_cq_ex>(EINVAL);
  SoftCq* const cq = make_cq(context, static_cast<int>(init->cqe), init->cq_context, init->channel,
                             static_cast<int>(init->comp_vector));
  if (cq == nullptr) return nullptr;
  if (has_domain) cq->parent_domain = PdUse(SoftPd::from(init->parent_domain));
  cq->cursor().install(*cq, init->wc_flags);
  if (has_flags && (init->flags & IBV_CREATE_CQ_ATTR_IGNORE_OVERRUN) != 0) cq->ignore_overrun();
  return cq;
}

int resize_cq(ibv_cq* cq, int depth) {
  if (const int error = device_error(cq->context); error != 0) return error;
  if (depth < 1 || depth > kMaxCompletions) return EINVAL;
  return SoftCq::from(cq).resize(depth);
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
  context.events().retire(soft.events);
  context.completion_queues().remove(soft);
  context.give_back(context.segment(), soft.take_block());
  delete &soft;
  return 0;
}

int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
  for (;;) {
    std::uint64_t one = 0;
    const iovec to{&one, sizeof(one)};
    // Unlike read(2), a cancellation point also for programs under softdev-run, see preload/uncancellable.cc.
    if (readv(channel->fd, &to, 1) != sizeof(one)) return -1;
    SoftCq* const fired = from(channel).take_event();
    if (fired == nullptr) continue;  // its queue was destroyed since
    *cq = fired->verbs();
    *cq_context = fired->cq_context;
    return 0;
  }
}

void ack_cq_events(ibv_cq* cq, unsigned count) {
  SoftCq::from(cq).acknowledge(count);
}

}  // namespace rdmacomm::softdev
