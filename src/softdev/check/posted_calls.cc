// The calls that post requests, in the place of those of the device.
#include <cerrno>
#include <mutex>
#include <span>
#include <vector>

#include "softdev/check/locked.h"
#include "softdev/check/posting.h"
#include "softdev/check/tables.h"

namespace rdmacomm::softdev::check {
namespace {

/// The copies of a list that the device gets. It writes nothing into them that the program must see.
template <typename Wr>
struct Passed {
  std::vector<Wr> requests;
  std::vector<std::vector<ibv_sge>> slices;
  std::vector<Wr*> originals;
  std::vector<Request*> records;

  explicit Passed(Wr* first) {
    for (Wr* each = first; each != nullptr; each = each->next) originals.push_back(each);
    requests.reserve(originals.size());
    slices.resize(originals.size());
  }
};

template <typename Wr>
void add(Passed<Wr>& passed, Posting posting, ibv_pd* pd) {
  const std::size_t index = passed.requests.size();
  Wr& wr = passed.requests.emplace_back(*passed.originals[index]);
  posting.request->id = requests().draw_id();
  Request& record = admit(std::move(posting));
  passed.records.push_back(&record);
  wr.wr_id = record.id;
  wr.next = nullptr;
  if (index != 0) passed.requests[index - 1].next = &wr;
  std::vector<ibv_sge>& slices = passed.slices[index];
  if (ibv_sge whole{}; use_copy(record, pd, whole)) {
    slices = {whole};
  } else if (!record.slices.empty() && record.slices.size() == static_cast<std::size_t>(record.slice_count)) {
    slices.assign(wr.sg_list, wr.sg_list + wr.num_sge);
    follow_reads(record, slices);
  } else {
    return;  // inline, without slices, or with too many, which the device refuses
  }
  wr.sg_list = slices.data();
  wr.num_sge = static_cast<int>(slices.size());
}

/// Calls the device. If it refuses a request, takes out this request and those behind it. Threads: holds no Locked.
template <typename Wr, typename Function, typename Queue>
int pass(Passed<Wr>& passed, Wr** bad, Queue* queue, Function* function) {
  for (Request* const record : passed.records) remember_contents(*record);
  Wr* refused = nullptr;
  const int error = function(queue, passed.requests.data(), &refused);
  if (error == 0) return 0;
  const int kept = errno;
  std::size_t first = passed.requests.size();  // a device that does not set bad_wr: unknown, so all stay
  if (refused >= passed.requests.data() && refused < passed.requests.data() + passed.requests.size())
    first = static_cast<std::size_t>(refused - passed.requests.data());
  const Locked locked;
  for (std::size_t i = first; i < passed.records.size(); ++i) requests().remove(*passed.records[i]);
  if (bad != nullptr) *bad = first < passed.originals.size() ? passed.originals[first] : nullptr;
  errno = kept;
  return error;
}

/// Posts a list of requests to a queue.
/// order  the member of its Known that keeps the order of lists
/// check  looks at the Known before
template <typename Known, typename Queue, typename Wr, typename Function, typename Check>
int post(Queue* queue, Wr* wr, Wr** bad, Function* behind, std::mutex Known::*order, Check&& check) {
  const Inside inside;  // also in the device, whose accesses to the buffers are none of the program
  const StackId stack = capture_stack();
  Known* known = nullptr;
  {
    const Locked locked;
    known = objects().find_as<Known>(queue);
    if (known != nullptr) check(*known, stack);
  }
  if (known == nullptr || wr == nullptr) return behind(queue, wr, bad);
  const std::scoped_lock in_order(known->*order);
  Passed<Wr> passed(wr);
  {
    const Locked locked;
    for (const Wr* const each : passed.originals) add(passed, posting_of(*known, *each, stack), queue->pd);
  }
  return pass(passed, bad, queue, behind);
}

}  // namespace

int post_send(ibv_qp* qp, ibv_send_wr* wr, ibv_send_wr** bad) {
  return post(qp, wr, bad, table_of(qp->context, &Context::ops).post_send, &Qp::sending,
              [](Qp& known, StackId stack) { check_state(known, false, stack); });
}

int post_recv(ibv_qp* qp, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post(qp, wr, bad, table_of(qp->context, &Context::ops).post_recv, &Qp::receiving,
              [](Qp& known, StackId stack) { check_state(known, true, stack); });
}

int post_srq_recv(ibv_srq* srq, ibv_recv_wr* wr, ibv_recv_wr** bad) {
  return post(srq, wr, bad, table_of(srq->context, &Context::ops).post_srq_recv, &Srq::posting,
              [](Srq& /*known*/, StackId /*stack*/) {});
}

int bind_mw(ibv_qp* qp, ibv_mw* mw, ibv_mw_bind* bind) {
  const StackId stack = capture_stack();
  auto* const behind = table_of(qp->context, &Context::ops).bind_mw;
  Qp* known = nullptr;
  {
    const Locked locked;
    known = objects().find_as<Qp>(qp);
    if (known != nullptr) check_state(*known, false, stack);
  }
  if (known == nullptr) return behind(qp, mw, bind);
  const std::scoped_lock order(known->sending);
  ibv_mw_bind passed = *bind;
  ibv_send_wr wr{};
  wr.wr_id = bind->wr_id;
  wr.opcode = IBV_WR_BIND_MW;
  wr.send_flags = bind->send_flags;
  Request* record = nullptr;
  {
    const Locked locked;
    Posting posting = posting_of(*known, wr, stack);
    posting.request->id = requests().draw_id();
    record = &admit(std::move(posting));
    passed.wr_id = record->id;
  }
  const int error = behind(qp, mw, &passed);
  if (error != 0) {
    const Locked locked;
    requests().remove(*record);
  }
  return error;
}

}  // namespace rdmacomm::softdev::check
