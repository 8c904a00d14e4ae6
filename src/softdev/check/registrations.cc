#include "softdev/check/registrations.h"

#include <algorithm>
#include <atomic>
#include <string>

#include "softdev/check/requests.h"

namespace rdmacomm::softdev::check {
namespace {

/// All registrations so far lie in [lowest, highest).
std::atomic<std::uint64_t> lowest{UINT64_MAX};
std::atomic<std::uint64_t> highest{0};

void widen(std::uint64_t begin, std::uint64_t end) noexcept {
  if (begin < lowest.load(std::memory_order_relaxed)) lowest.store(begin, std::memory_order_relaxed);
  if (end > highest.load(std::memory_order_relaxed)) highest.store(end, std::memory_order_relaxed);
}

void describe_memory(Mr& mr, const Registered& registered) {
  mr.begin = registered.begin;
  mr.length = registered.length;
  mr.offset = (registered.access & IBV_ACCESS_ZERO_BASED) != 0 ? registered.begin : registered.begin - registered.iova;
  mr.access = registered.access;
  // Pages of on-demand registrations need not exist.
  mr.is_memory = registered.is_memory && (registered.access & IBV_ACCESS_ON_DEMAND) == 0;
  if (mr.is_memory) widen(mr.begin, mr.begin + mr.length);
}

bool takes_messages(const Qp& qp) {
  return qp.state == IBV_QPS_RTR || qp.state == IBV_QPS_RTS || qp.state == IBV_QPS_SQD;
}

/// A queue pair that takes no messages in this state cannot use its receives either. Messages to an XRC shared receive
/// queue may arrive by queue pairs of other processes.
bool is_live(const Request& request) {
  if (const auto* const qp = dynamic_cast<const Qp*>(request.owner); qp != nullptr) return takes_messages(*qp);
  const auto& srq = static_cast<const Srq&>(*request.owner);
  return srq.is_xrc || std::any_of(objects().all().begin(), objects().all().end(), [&srq](const auto& entry) {
           const auto* const qp = dynamic_cast<const Qp*>(entry.second.get());
           return qp != nullptr && qp->srq == &srq && takes_messages(*qp);
         });
}

bool uses(const Request& request, const Mr& mr) {
  return std::any_of(request.slices.begin(), request.slices.end(),
                     [&](const Slice& slice) { return slice.mr.get() == &mr; });
}

}  // namespace

Registered of_memory(ibv_pd* pd, void* address, std::size_t length, int access, std::uint64_t iova) {
  return {.pd = pd,
          .begin = reinterpret_cast<std::uint64_t>(address),
          .length = length,
          .iova = iova,
          .access = static_cast<unsigned>(access)};
}

ibv_mr* record_registration(ibv_mr* made, const Registered& registered) {
  return record<Mr>(made, {registered.pd, registered.used}, [&](Mr& mr) { describe_memory(mr, registered); });
}

void check_deregistration(ibv_mr* mr) {
  const StackId where = capture_stack();
  const Locked locked;
  const auto* const known = objects().find_as<Mr>(mr);
  if (known == nullptr || known->in_flight == 0) return;
  for (const auto& [id, request] : requests().all()) {
    if (!request->is_signaled || !is_live(*request) || !uses(*request, *known)) continue;
    Report used{Rule::kDeregisteredInFlight, "a registration was deregistered while a request in flight uses it", {}};
    used.line("deregistered", "at", where).line("registration", known->describe() + ", made at", known->created);
    return report(tell_request(used, *request));
  }
}

void change_registration(ibv_mr* mr, int flags, ibv_pd* pd, void* address, std::size_t length, int access) {
  const Locked locked;
  auto* const known = objects().find_as<Mr>(mr);
  if (known == nullptr) return;
  Registered now{.pd = pd,
                 .begin = known->begin,
                 .length = known->length,
                 .iova = known->begin - known->offset,
                 .access = known->access,
                 .is_memory = known->is_memory};
  if ((flags & IBV_REREG_MR_CHANGE_TRANSLATION) != 0) {
    now.begin = now.iova = reinterpret_cast<std::uint64_t>(address);
    now.length = length;
    known->is_unmapped = false;
  }
  if ((flags & IBV_REREG_MR_CHANGE_ACCESS) != 0) now.access = static_cast<unsigned>(access);
  if ((flags & IBV_REREG_MR_CHANGE_PD) != 0) known->uses = {pd};
  describe_memory(*known, now);
  objects().rekey(*known, mr->lkey, mr->rkey);
}

int check_refused(const void* object, const char* call, int error) {
  if (error != EBUSY) return error;
  const Object* const known = objects().find(object);
  if (known == nullptr) return error;
  const StackId where = capture_stack_locked();
  Report refused{Rule::kDestroyRefused, std::string(call) + " has returned EBUSY, so the object still exists", {}};
  refused.line("call", "at", where).line("object", known->describe() + ", created at", known->created);
  if (const Object* const user = objects().user_of(object); user != nullptr)
    refused.line("used by", user->describe() + ", created at", user->created);
  report(refused);
  return error;
}

bool may_be_registered(std::uint64_t begin, std::uint64_t end) noexcept {
  return begin < highest.load(std::memory_order_relaxed) && end > lowest.load(std::memory_order_relaxed);
}

void note_freed(std::uint64_t begin, std::uint64_t length, const char* how, bool is_unmapped, std::uint64_t born,
                StackId where) {
  const Request* in_flight = nullptr;
  requests().for_each_in(begin, length, [&](const Ranges::Range& range) {
    const Request& request = *range.request;
    if (request.born <= born && request.is_signaled && is_live(request)) in_flight = range.request;
    return in_flight == nullptr;
  });
  if (in_flight != nullptr) {
    Report freed{Rule::kMemoryFreedInFlight, std::string(how) + " has freed a buffer of a request in flight", {}};
    freed.line("freed", "at", where);
    report(tell_request(freed, *in_flight));
  }
  for (const auto& [address, object] : objects().all()) {
    if (object->kind != ObjectKind::kMr || object->is_of_parent || object->born > born) continue;
    auto& mr = static_cast<Mr&>(*object);
    if (!mr.is_memory || mr.begin + mr.length <= begin || begin + length <= mr.begin) continue;
    if (is_unmapped) mr.is_unmapped = true;
    if (!mr.is_for_peers() || in_flight != nullptr) continue;
    Report freed{Rule::kRegisteredMemoryFreed,
                 std::string(how) + " has freed memory that is registered for access by peers",
                 {}};
    freed.line("freed", "at", where).line("registration", mr.describe() + ", made at", mr.created);
    report(freed);
  }
}

}  // namespace rdmacomm::softdev::check
