#include "softdev/check/requests.h"

#include <algorithm>
#include <array>
#include <atomic>
#include <utility>

#include "softdev/check/object_calls.h"
#include "softdev/check/pages.h"

namespace rdmacomm::softdev::check {
namespace {

const char* name_of_operation(const Request& request) noexcept {
  if (request.is_receive) return "RECV";
  switch (request.opcode) {
    case IBV_WR_SEND: return "SEND";
    case IBV_WR_SEND_WITH_IMM: return "SEND_WITH_IMM";
    case IBV_WR_SEND_WITH_INV: return "SEND_WITH_INV";
    case IBV_WR_RDMA_WRITE: return "WRITE";
    case IBV_WR_RDMA_WRITE_WITH_IMM: return "WRITE_WITH_IMM";
    case IBV_WR_RDMA_READ: return "READ";
    case IBV_WR_ATOMIC_CMP_AND_SWP: return "COMPARE_SWAP";
    case IBV_WR_ATOMIC_FETCH_AND_ADD: return "FETCH_ADD";
    case IBV_WR_LOCAL_INV: return "LOCAL_INV";
    case IBV_WR_BIND_MW: return "BIND_MW";
    default: return "request";
  }
}

/// The number of requests in flight, by a hash of their wr_id. Read by free() without a lock.
constinit std::array<std::atomic<std::uint32_t>, 1 << 14> wr_id_counts{};

std::atomic<std::uint32_t>& count_of(std::uint64_t wr_id) noexcept {
  return wr_id_counts[(wr_id * 0x9e3779b97f4a7c15ULL) >> 50];
}

}  // namespace

bool is_wr_id(std::uint64_t wr_id) noexcept {
  return count_of(wr_id).load(std::memory_order_relaxed) != 0;
}

bool Request::writes() const noexcept {
  return is_receive || opcode == IBV_WR_RDMA_READ || opcode == IBV_WR_ATOMIC_CMP_AND_SWP ||
         opcode == IBV_WR_ATOMIC_FETCH_AND_ADD;
}

std::uint64_t Request::bytes() const noexcept {
  std::uint64_t sum = inline_bytes;
  for (const Slice& slice : slices) sum += slice.given.length;
  return sum;
}

std::vector<Bytes> Request::readable() const {
  std::vector<Bytes> all;
  for (const Slice& slice : slices) {
    if (slice.address == 0 || slice.mr == nullptr || !slice.mr->is_memory || slice.mr->is_unmapped) return {};
    if (slice.given.length != 0) all.push_back({slice.address, slice.given.length});
  }
  return all;
}

std::string Request::describe() const {
  std::string text = std::string(name_of_operation(*this)) + " with wr_id " + hexadecimal(wr_id) + ", " +
                     std::to_string(bytes()) + " bytes";
  if (is_inline) return text + ", inline";
  if (slices.empty()) return text;
  text += slices.size() == 1 ? " at " : " in " + std::to_string(slices.size()) + " slices, the first at ";
  return text + hexadecimal(slices.front().given.addr);
}

Request& Requests::add(std::unique_ptr<Request> request) {
  Request& added = *request;
  for (Slice& slice : added.slices) {
    if (slice.mr != nullptr) ++slice.mr->in_flight;
    if (slice.address != 0 && slice.given.length != 0)
      ranges_.insert(slice.address, {slice.given.length, &added, added.writes()});
  }
  added.queue->requests.push_back(&added);
  if (added.is_signaled) {
    ++added.queue->signaled;
    if (added.cq != nullptr) ++added.cq->outstanding;
  }
  by_wr_id_.emplace(added.wr_id, &added);
  count_of(added.wr_id).fetch_add(1, std::memory_order_relaxed);
  all_[added.id] = std::move(request);
  return added;
}

void Requests::remove(Request& request) {
  unprotect(request);
  for (const Slice& slice : request.slices) {
    if (slice.mr != nullptr) --slice.mr->in_flight;
    if (slice.address != 0 && slice.given.length != 0) ranges_.erase(slice.address, slice.given.length, &request);
  }
  if (request.copy) copies().give_back(*request.copy);
  auto& queue = request.queue->requests;
  const auto place = std::find(queue.begin(), queue.end(), &request);
  if (place != queue.end()) queue.erase(place);
  if (request.is_signaled) {
    --request.queue->signaled;
    if (request.cq != nullptr) --request.cq->outstanding;
  }
  by_wr_id_.erase({request.wr_id, &request});
  count_of(request.wr_id).fetch_sub(1, std::memory_order_relaxed);
  all_.erase(request.id);
}

void Requests::remove_all(Queue& queue) {
  while (!queue.requests.empty()) remove(*queue.requests.front());
}

Request* Requests::find(std::uint64_t id) {
  if ((id & (0xffffULL << 48)) != kMark) return nullptr;
  const auto found = all_.find(id);
  return found == all_.end() ? nullptr : found->second.get();
}

void Requests::mark_wr_id_freed(std::uint64_t address, std::uint64_t born, StackId where) {
  for (auto at = by_wr_id_.lower_bound({address, nullptr}); at != by_wr_id_.end() && at->first == address; ++at)
    if (at->second->born <= born) at->second->wr_id_freed = where;
}

void forget_requests_of(const void* address) {
  Object* const known = objects().find(address);
  if (auto* const qp = dynamic_cast<Qp*>(known); qp != nullptr) {
    requests().remove_all(qp->sends);
    requests().remove_all(qp->receives);
  } else if (auto* const srq = dynamic_cast<Srq*>(known); srq != nullptr) {
    requests().remove_all(srq->receives);
  }
}

void unprotect(Request& request) {
  if (!request.is_protected) return;
  for (const Slice& slice : request.slices) unprotect_pages(slice.address, slice.given.length, request.id);
  request.is_protected = false;
}

Requests& requests() {
  static auto& all = *new Requests;  // never destroyed: programs use verbs until they end
  return all;
}

Report& tell_request(Report& report, const Request& request, const char* label) {
  report.line(label, request.describe() + ", posted at", request.posted);
  return report.line("its queue", request.owner->describe() + ", created at", request.owner->created);
}

}  // namespace rdmacomm::softdev::check
