// posting.h - the rules that a request must keep when it is posted.
#pragma once

#include <memory>
#include <vector>

#include "softdev/check/requests.h"

namespace rdmacomm::softdev::check {

/// All that is known about a request when it is posted.
struct Posting {
  std::unique_ptr<Request> request;
  std::uint32_t rkey = 0;  ///< of READ, WRITE and atomics
  std::uint64_t remote_address = 0;
  bool is_remote = false;
};

/// A request of a send queue.
[[nodiscard]] Posting posting_of(Qp& qp, const ibv_send_wr& wr, StackId stack);
/// A receive.
[[nodiscard]] Posting posting_of(Qp& qp, const ibv_recv_wr& wr, StackId stack);
[[nodiscard]] Posting posting_of(Srq& srq, const ibv_recv_wr& wr, StackId stack);

/// Reports the rules that a request breaks, and takes it in.
/// Threads: the caller holds a Locked, and the lock of the queue.
Request& admit(Posting posting);

/// Gives the request memory of the checker, if it is a receive (with `--check=pages`, also a READ or an atomic). Returns
/// true if `slice` now describes that memory, which replaces all slices.
/// Threads: the caller holds a Locked.
[[nodiscard]] bool use_copy(Request& request, ibv_pd* pd, ibv_sge& slice);

/// With `--check=pages`: a fenced SEND or WRITE may send the data of a READ before the program has polled the completion
/// of the READ. This data is in memory of the checker. Replaces such slices by that memory.
/// Threads: the caller holds a Locked.
void follow_reads(const Request& request, std::vector<ibv_sge>& slices);

/// The device gets the request next: remembers the contents of its buffers, and protects their pages.
/// Threads: the caller holds the lock of the queue, so that the request stays.
void remember_contents(Request& request);

/// Reports a queue pair that does not take requests in its state.
/// Threads: the caller holds a Locked.
void check_state(const Qp& qp, bool is_receive, StackId stack);

}  // namespace rdmacomm::softdev::check
