#include "softdev/check/completing.h"

#include <algorithm>
#include <utility>

#include "softdev/check/pages.h"

namespace rdmacomm::softdev::check {
namespace {

/// A report about a request whose completion was polled, and about the memory that it has used.
void report_buffer(Rule rule, const char* happened, const Request& request) {
  if (count_again(rule, request.posted)) return;
  Report changed{rule, happened, {}};
  tell_request(changed, request);
  report(changed);
}

/// True if a buffer lies in a frame that has returned. Reports it.
bool check_stack(const Request& request, const void* caller) {
  const auto frame = reinterpret_cast<std::uint64_t>(caller);
  const bool is_same_thread = request.thread == std::this_thread::get_id();
  if (!is_same_thread || frame < request.stack_low || frame >= request.stack_high) return false;
  for (const Slice& slice : request.slices) {
    if (slice.address < request.stack_low || slice.address >= frame) continue;
    report_buffer(Rule::kStackMemory,
                  "a buffer lies in the frame of a function that has returned before the completion", request);
    return true;
  }
  return false;
}

/// True if the program has changed the buffers since the post. Reports it.
void check_contents(const Request& request) {
  if (!request.hash || !request.is_alone) return;
  const std::vector<Bytes> bytes = request.readable();
  if (bytes.empty()) return;
  const auto now = hash_memory(bytes);
  if (!now || *now == *request.hash) return;
  const bool is_for_peers = std::any_of(request.slices.begin(), request.slices.end(), [](const Slice& slice) {
    return (slice.mr->access & (IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC)) != 0;
  });
  const char* const by = is_for_peers ? "by the program, or by a peer that has the rkey" : "by the program";
  const std::string happened =
      std::string("the contents of a buffer were changed ") + by + " between the post and the completion";
  report_buffer(request.writes() ? Rule::kReceiveBufferChanged : Rule::kSendBufferChanged, happened.c_str(), request);
}

/// Puts the data from the checker's memory into the program's buffers.
void deliver(const Request& request, std::uint64_t bytes) {
  const std::byte* from = request.copy->address;
  for (const Slice& slice : request.slices) {
    const std::uint64_t length = std::min<std::uint64_t>(bytes, slice.given.length);
    open_for_checker(slice.address, length);
    const bool is_written = write_memory(slice.address, from, length);
    close_again(slice.address, length);
    if (!is_written) {
      report_buffer(Rule::kMemoryFreedInFlight, "the memory of a buffer was unmapped before the completion", request);
      return;
    }
    from += length;
    bytes -= length;
  }
}

/// Ends a request that the device has executed.
void end_successful(Request& request, const Completed* own, const void* caller) {
  unprotect(request);
  const bool is_without_data = own != nullptr && own->opcode == IBV_WC_RECV_RDMA_WITH_IMM;
  if (check_stack(request, caller)) return;  // other functions use this part of the stack now
  if (!is_without_data) check_contents(request);
  if (request.copy && !is_without_data) {
    const bool is_receive = request.is_receive && own != nullptr;
    deliver(request, is_receive ? own->bytes : request.bytes());
  }
}

void check_status(const Request& request, ibv_wc_status status) {
  const auto has_unknown_key = [](const Slice& slice) {
    return slice.mr == nullptr && !slice.is_told && slice.given.length != 0;
  };
  if (status == IBV_WC_REM_ACCESS_ERR) {
    report_buffer(Rule::kRemoteAccess, "the peer has refused access to its memory (IBV_WC_REM_ACCESS_ERR)", request);
  } else if (status == IBV_WC_LOC_PROT_ERR &&
             std::any_of(request.slices.begin(), request.slices.end(), has_unknown_key)) {
    report_buffer(Rule::kSliceOutside, "a slice has an lkey that no registration of the process has", request);
  }
}

/// The device has moved the queue pair.
void follow_error(const Request& request) {
  auto* const qp = dynamic_cast<Qp*>(request.owner);
  if (qp == nullptr || qp->state == IBV_QPS_RESET) return;
  const bool is_unreliable = qp->type == IBV_QPT_UD || qp->type == IBV_QPT_UC;
  qp->state = is_unreliable && !request.is_receive ? IBV_QPS_SQE : IBV_QPS_ERR;
}

}  // namespace

void complete(Completed& completion, const void* caller) {
  Request* const request = requests().find(completion.wr_id);
  if (request == nullptr) return;
  completion.wr_id = request->wr_id;
  if (request->wr_id_freed != 0) {
    Report freed{Rule::kWrIdFreed, "the wr_id of a completion is the address of memory that was freed", {}};
    tell_request(freed, *request).line("freed", "at", request->wr_id_freed);
    report(freed);
  }
  // Requests of a send queue complete in their order, also those without a completion of their own.
  while (!request->is_receive && request->queue->requests.front() != request) {
    Request& earlier = *request->queue->requests.front();
    if (completion.status == IBV_WC_WR_FLUSH_ERR) {
      unprotect(earlier);  // it was flushed, too
    } else {
      end_successful(earlier, nullptr, caller);
    }
    requests().remove(earlier);
  }
  if (completion.status == IBV_WC_SUCCESS) {
    end_successful(*request, &completion, caller);
  } else {
    unprotect(*request);
    check_status(*request, completion.status);
    follow_error(*request);
  }
  requests().remove(*request);
}

}  // namespace rdmacomm::softdev::check
