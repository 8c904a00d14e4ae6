#include "softdev/check/posting.h"

#include <pthread.h>

#include <algorithm>
#include <map>
#include <tuple>
#include <utility>

#include "softdev/check/locked.h"
#include "softdev/check/options.h"
#include "softdev/check/pages.h"

namespace rdmacomm::softdev::check {
namespace {

/// The stack of this thread: [low, high).
std::pair<std::uint64_t, std::uint64_t> own_stack() {
  static thread_local const auto range = [] {
    pthread_attr_t attributes;
    std::pair<std::uint64_t, std::uint64_t> found{0, 0};
    if (pthread_getattr_np(pthread_self(), &attributes) != 0) return found;
    void* low = nullptr;
    std::size_t length = 0;
    if (pthread_attr_getstack(&attributes, &low, &length) == 0) {
      found.first = reinterpret_cast<std::uint64_t>(low);
      found.second = found.first + length;
    }
    pthread_attr_destroy(&attributes);
    return found;
  }();
  return range;
}

/// most  the number of slices that the queue takes
std::unique_ptr<Request> request_of(Object& owner, Queue& queue, std::uint64_t wr_id, StackId stack,
                                    const ibv_sge* slices, int count, std::uint32_t most) {
  auto request = std::make_unique<Request>();
  request->owner = &owner;
  request->queue = &queue;
  request->wr_id = wr_id;
  request->posted = stack;
  request->thread = std::this_thread::get_id();
  std::tie(request->stack_low, request->stack_high) = own_stack();
  request->slice_count = count;
  // A wrong number must not lead to memory that is not there.
  for (int i = 0; i < count && static_cast<std::uint32_t>(i) <= most; ++i)
    request->slices.push_back({slices[i], 0, nullptr, false});
  return request;
}

Report& tell_registration(Report& report, const Mr& mr) {
  report.line("registration", mr.describe() + ", made at", mr.created);
  if (mr.deregistered != 0) report.line("deregistered", "at", mr.deregistered);
  return report;
}

/// A parent domain stands for the domain that it was made from.
const void* root_domain(const void* pd) {
  const Object* const known = objects().find(pd);
  if (known == nullptr) return pd;
  for (const void* const used : known->uses) {
    const Object* const below = objects().find(used);
    if (below != nullptr && below->kind == ObjectKind::kPd) return root_domain(used);
  }
  return pd;
}

/// The domain of a queue pair or shared receive queue.
const void* domain_of(const Object& owner) {
  const auto* const qp = dynamic_cast<const Qp*>(&owner);
  return root_domain(qp != nullptr ? qp->verbs->pd : static_cast<const Srq&>(owner).verbs->pd);
}

/// The number of slices that a request of this queue may have.
std::uint32_t most_slices(const Request& request) {
  const auto* const qp = dynamic_cast<const Qp*>(request.owner);
  if (qp == nullptr) return static_cast<const Srq&>(*request.owner).max_sge;
  return request.is_receive ? qp->capacity.max_recv_sge : qp->capacity.max_send_sge;
}

/// Finds the registration and the address of a slice, and reports a slice that may not be used.
void place(Request& request, Slice& slice) {
  slice.mr = objects().by_lkey(request.owner->context, slice.given.lkey);
  if (slice.mr == nullptr) return;
  const Mr& mr = *slice.mr;
  slice.address = mr.is_memory ? slice.given.addr + mr.offset : 0;
  if (mr.deregistered != 0) {
    Report used{Rule::kSliceDeregistered, "a slice of a request has an lkey that was deregistered", {}};
    report(tell_registration(tell_request(used, request), mr));
    slice.mr.reset();
    slice.is_told = true;
    slice.address = 0;
    return;
  }
  if (!mr.uses.empty() && root_domain(mr.uses.front()) != domain_of(*request.owner)) {
    Report other{Rule::kSliceOutside, "a slice has an lkey of another protection domain than the queue", {}};
    report(tell_registration(tell_request(other, request), mr));
    slice.address = 0;
    return;
  }
  const std::uint64_t begin = slice.given.addr + mr.offset;
  const bool is_inside =
      begin >= mr.begin && slice.given.length <= mr.length && begin - mr.begin <= mr.length - slice.given.length;
  if (mr.is_memory && !is_inside && slice.given.length != 0) {
    Report outside{Rule::kSliceOutside,
                   "a slice of " + std::to_string(slice.given.length) + " bytes at " + hexadecimal(slice.given.addr) +
                       " is not inside the registration of its lkey",
                   {}};
    report(tell_registration(tell_request(outside, request), mr));
    slice.address = 0;
    return;
  }
  if (request.writes() && (mr.access & IBV_ACCESS_LOCAL_WRITE) == 0 && mr.is_memory) {
    Report refused{Rule::kSliceOutside, "the device is to write to a registration without IBV_ACCESS_LOCAL_WRITE", {}};
    report(tell_registration(tell_request(refused, request), mr));
    slice.address = 0;
    return;
  }
  if (mr.is_unmapped) {
    Report gone{Rule::kRegisteredMemoryFreed, "a request uses memory that was unmapped since its registration", {}};
    report(tell_registration(tell_request(gone, request), mr));
    slice.address = 0;
  }
}

bool is_same_buffer(const Request& one, const Request& other) {
  return std::equal(one.slices.begin(), one.slices.end(), other.slices.begin(), other.slices.end(),
                    [](const Slice& left, const Slice& right) {
                      return left.address == right.address && left.given.length == right.given.length;
                    });
}

/// READ into a buffer, then a fenced SEND or WRITE from it, is the purpose of IBV_SEND_FENCE.
bool is_after_fence(const Request& later, const Request& earlier) {
  return !later.writes() && later.is_fenced && !earlier.is_receive && later.queue == earlier.queue;
}

void check_overlap(Request& request) {
  Request* with = nullptr;
  for (const Slice& slice : request.slices) {
    if (slice.address == 0 || slice.given.length == 0) continue;
    requests().for_each_in(slice.address, slice.given.length, [&](const Ranges::Range& range) {
      if (!range.writes && !request.writes()) return true;
      request.is_alone = range.request->is_alone = false;
      unprotect(*range.request);
      if (with == nullptr && !is_after_fence(request, *range.request)) with = range.request;
      return true;
    });
  }
  if (with == nullptr) return;
  const bool is_twice = request.is_receive && with->is_receive && is_same_buffer(request, *with);
  if (count_again(is_twice ? Rule::kReceiveTwice : Rule::kOverlap, request.posted)) return;
  Report shared{is_twice ? Rule::kReceiveTwice : Rule::kOverlap,
                is_twice ? "a receive has the same buffer as a receive in flight"
                         : "two requests in flight have bytes in common, and the device writes them",
                {}};
  tell_request(shared, request);
  shared.line("in flight", with->describe() + ", posted at", with->posted);
  report(shared);
}

/// True if the target of a queue pair belongs to this process. Other processes have keys of their own.
bool is_of_this_process(const Object& owner) {
  const auto* const qp = dynamic_cast<const Qp*>(&owner);
  return qp != nullptr && qp->peer_qpn != 0 &&
         std::any_of(objects().all().begin(), objects().all().end(), [qp](const auto& entry) {
           const auto* const other = dynamic_cast<const Qp*>(entry.second.get());
           return other != nullptr && other->verbs->qp_num == qp->peer_qpn;
         });
}

void check_remote(const Posting& posting) {
  if (!posting.is_remote) return;
  const auto mr = objects().by_rkey(posting.rkey);
  if (mr == nullptr || mr->deregistered == 0 || !is_of_this_process(*posting.request->owner)) return;
  Report used{Rule::kRkeyDeregistered, "a request has an rkey that was deregistered", {}};
  report(tell_registration(tell_request(used, *posting.request), *mr));
}

void check_wr_id(const Request& request) {
  if (!options().wr_ids) return;
  for (const Request* const other : request.queue->requests) {
    if (other->wr_id != request.wr_id || !other->is_signaled || !request.is_signaled) continue;
    Report reused{Rule::kWrIdReused, "two requests of a queue in flight have the same wr_id", {}};
    tell_request(reused, request).line("in flight", other->describe() + ", posted at", other->posted);
    return report(reused);
  }
}

/// The number of requests whose completions may wait in a queue.
void check_room(const Request& request) {
  Cq* cq = request.cq;
  std::uint64_t shared = 0;
  if (cq == nullptr) {
    auto& srq = static_cast<Srq&>(*request.owner);
    if (srq.queues.size() != 1) return;  // a receive completes to one of several queues
    cq = const_cast<Cq*>(*srq.queues.begin());
    shared = srq.receives.requests.size() + 1;
  }
  const std::uint64_t most = cq->outstanding + shared + (request.cq != nullptr && request.is_signaled ? 1 : 0);
  if (cq->is_told_small || most <= static_cast<std::uint64_t>(cq->verbs->cqe)) return;
  cq->is_told_small = true;
  Report small{Rule::kQueueTooSmall,
               std::to_string(most) + " requests in flight may complete to a queue with " +
                   std::to_string(cq->verbs->cqe) + " entries",
               {}};
  tell_request(small, request, "last request").line("completion queue", "created at", cq->created);
  report(small);
}

void check_inline(const Request& request, const Qp& qp) {
  const bool may_be = request.opcode == IBV_WR_SEND || request.opcode == IBV_WR_SEND_WITH_IMM ||
                      request.opcode == IBV_WR_SEND_WITH_INV || request.opcode == IBV_WR_RDMA_WRITE ||
                      request.opcode == IBV_WR_RDMA_WRITE_WITH_IMM;
  if (request.is_receive || !request.is_inline) return;
  if (may_be && request.inline_bytes <= qp.capacity.max_inline_data) return;
  Report too_long{Rule::kInline,
                  may_be
                      ? std::to_string(request.inline_bytes) + " bytes are inline, but the queue pair takes at most " +
                            std::to_string(qp.capacity.max_inline_data)
                      : "an operation that cannot be inline has IBV_SEND_INLINE",
                  {}};
  report(tell_request(too_long, request));
}

void check_slices(const Request& request) {
  const std::uint32_t most = most_slices(request);
  if (request.slice_count >= 0 && static_cast<std::uint32_t>(request.slice_count) <= most) return;
  Report too_many{Rule::kRequestMemory,
                  "a request has " + std::to_string(request.slice_count) + " slices, but its queue takes at most " +
                      std::to_string(most),
                  {}};
  report(tell_request(too_many, request));
}

}  // namespace

Posting posting_of(Qp& qp, const ibv_send_wr& wr, StackId stack) {
  const bool is_inline = (wr.send_flags & IBV_SEND_INLINE) != 0;
  const std::uint32_t most = qp.capacity.max_send_sge;
  Posting posting{request_of(qp, qp.sends, wr.wr_id, stack, wr.sg_list, is_inline ? 0 : wr.num_sge, most), 0, 0, false};
  Request& request = *posting.request;
  request.cq = qp.send_cq;
  request.opcode = wr.opcode;
  request.is_inline = is_inline;
  request.is_signaled = qp.signals_all || (wr.send_flags & IBV_SEND_SIGNALED) != 0;
  request.is_fenced = (wr.send_flags & IBV_SEND_FENCE) != 0;
  if (is_inline) {
    for (int i = 0; i < wr.num_sge && static_cast<std::uint32_t>(i) <= most; ++i)
      request.inline_bytes += wr.sg_list[i].length;
  }
  switch (wr.opcode) {
    case IBV_WR_RDMA_READ:
    case IBV_WR_RDMA_WRITE:
    case IBV_WR_RDMA_WRITE_WITH_IMM:
      posting = {std::move(posting.request), wr.wr.rdma.rkey, wr.wr.rdma.remote_addr, true};
      break;
    case IBV_WR_ATOMIC_CMP_AND_SWP:
    case IBV_WR_ATOMIC_FETCH_AND_ADD:
      posting = {std::move(posting.request), wr.wr.atomic.rkey, wr.wr.atomic.remote_addr, true};
      break;
    default: break;
  }
  return posting;
}

Posting posting_of(Qp& qp, const ibv_recv_wr& wr, StackId stack) {
  Posting posting{request_of(qp, qp.receives, wr.wr_id, stack, wr.sg_list, wr.num_sge, qp.capacity.max_recv_sge), 0, 0,
                  false};
  posting.request->cq = qp.recv_cq;
  posting.request->is_receive = posting.request->is_signaled = true;
  return posting;
}

Posting posting_of(Srq& srq, const ibv_recv_wr& wr, StackId stack) {
  Posting posting{request_of(srq, srq.receives, wr.wr_id, stack, wr.sg_list, wr.num_sge, srq.max_sge), 0, 0, false};
  posting.request->is_receive = posting.request->is_signaled = true;
  return posting;
}

Request& admit(Posting posting) {
  Request& request = *posting.request;
  for (Slice& slice : request.slices) place(request, slice);
  check_overlap(request);
  check_remote(posting);
  check_wr_id(request);
  if (request.is_signaled) check_room(request);
  check_slices(request);
  if (const auto* const qp = dynamic_cast<const Qp*>(request.owner); qp != nullptr) check_inline(request, *qp);
  return requests().add(std::move(posting.request));
}

bool use_copy(Request& request, ibv_pd* pd, ibv_sge& slice) {
  if (!request.is_receive && !(options().pages && request.writes())) return false;
  const std::uint64_t bytes = request.bytes();
  // Without bytes, or the device must refuse them: a slice is wrong, or one too many.
  if (request.readable().empty() || bytes > UINT32_MAX || request.slices.size() > most_slices(request)) return false;
  if (request.is_receive) {
    if (request.cq != nullptr && !request.cq->has_lengths) return false;
    if (const auto* const srq = dynamic_cast<const Srq*>(request.owner); srq != nullptr) {
      for (const Cq* const cq : srq->queues) {
        if (!cq->has_lengths) return false;
      }
    }
  }
  request.copy = copies().take(pd, bytes);
  if (!request.copy) return false;
  slice = {reinterpret_cast<std::uint64_t>(request.copy->address), static_cast<std::uint32_t>(bytes),
           request.copy->lkey};
  return true;
}

void follow_reads(const Request& request, std::vector<ibv_sge>& slices) {
  if (!request.is_fenced || request.is_alone || request.writes()) return;
  std::vector<ibv_sge> pieces;
  for (const Slice& slice : request.slices) {
    // Pieces of the slice that a READ fills, by their offset in the slice.
    std::map<std::uint64_t, ibv_sge> filled;
    for (const Request* const read : request.queue->requests) {
      std::uint64_t before = 0;  // bytes of the READ in its slices before
      for (const Slice& target : read->slices) {
        const std::uint64_t begin = std::max(slice.address, target.address);
        const std::uint64_t end = std::min(slice.address + slice.given.length, target.address + target.given.length);
        if (read->copy && begin < end) {
          const std::uint64_t at =
              reinterpret_cast<std::uint64_t>(read->copy->address) + before + begin - target.address;
          filled[begin - slice.address] = {at, static_cast<std::uint32_t>(end - begin), read->copy->lkey};
        }
        before += target.given.length;
      }
    }
    std::uint64_t done = 0;
    for (const auto& [offset, piece] : filled) {
      if (offset < done) continue;  // two READs of the same bytes: an overlap, which is reported
      if (offset > done)
        pieces.push_back({slice.given.addr + done, static_cast<std::uint32_t>(offset - done), slice.given.lkey});
      pieces.push_back(piece);
      done = offset + piece.length;
    }
    if (done < slice.given.length || slice.given.length == 0)
      pieces.push_back(
          {slice.given.addr + done, static_cast<std::uint32_t>(slice.given.length - done), slice.given.lkey});
  }
  slices = std::move(pieces);
}

void remember_contents(Request& request) {
  // Bytes that another request in flight has, too, may change when that one ends.
  if (request.is_inline || !request.is_alone) return;
  const Inside inside;
  if (request.copy || !request.writes()) {
    const std::vector<Bytes> bytes = request.readable();
    if (!bytes.empty()) request.hash = hash_memory(bytes);
  }
  if (!options().pages || (request.writes() && !request.copy)) return;
  const Locked locked;
  for (const Slice& slice : request.slices) {
    // Memory without this right may be of read-only pages, which must stay so.
    if (slice.address == 0 || (slice.mr->access & IBV_ACCESS_LOCAL_WRITE) == 0) continue;
    protect_pages(slice.address, slice.given.length, request.writes() ? Touch::kAny : Touch::kWrite, request.id);
    request.is_protected = true;
  }
}

void check_state(const Qp& qp, bool is_receive, StackId stack) {
  const bool is_early = is_receive ? qp.state == IBV_QPS_RESET
                                   : qp.state == IBV_QPS_RESET || qp.state == IBV_QPS_INIT || qp.state == IBV_QPS_RTR;
  if (!is_early || qp.is_opened) return;
  const char* const name = qp.state == IBV_QPS_RESET ? "RESET" : qp.state == IBV_QPS_INIT ? "INIT" : "RTR";
  Report early{Rule::kWrongState,
               std::string(is_receive ? "a receive was" : "requests were") + " posted to a queue pair in state " + name,
               {}};
  early.line("post", "at", stack).line("queue pair", qp.describe() + ", created at", qp.created);
  report(early);
}

}  // namespace rdmacomm::softdev::check
