// soft_qp.h - a queue pair: its two queues, its states, its retries.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "base/biased_lock.h"
#include "base/spin_lock.h"
#include "base/unique_fd.h"
#include "softdev/common/event_queue.h"
#include "softdev/common/reusing_queue.h"
#include "softdev/host/multicast.h"
#include "softdev/host/soft_ah.h"
#include "softdev/local/wire.h"
#include "softdev/memory/posted_receive.h"
#include "softdev/queues/qp_initiators.h"
#include "softdev/queues/qp_tcp.h"
#include "softdev/queues/request_builder.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

class MrTable;
class SoftCq;
class SoftSrq;
class SoftXrcd;
struct Premises;

/// What is settled when a queue pair is created, beside its ibv_qp_init_attr.
struct QpKind {
  Service service = Service::kReliable;
  std::uint32_t pd_number = 0;     ///< 0: it has none
  SoftXrcd* xrc_domain = nullptr;  ///< of IBV_QPT_XRC_RECV, and of Service::kXrcQueue
};

/// A queue pair, RC, UC, UD or XRC; or the receiving side of an XRC shared receive queue, to which no handle is given out
/// (Service::kXrcQueue): a queue pair that receives alone, from many initiators in turn. Requests are executed by the thread that posts them, in order; one that cannot be executed yet
/// (receiver not ready, target not reachable) waits with all that come after it, and is tried again by the
/// retrying thread and by poll_cq. In a context that is late, all wait for these. Requests to another host are kept until
/// they are answered, see QpTcp.
///
/// Threads: any. Locks, outermost first: the completion queue's, the send queue's.
/// Lifetime: shared; destroy() takes it out of service, the memory goes with the last user. The device's own threads
/// may be that, so they touch the completion queues under the send queue's lock or by QpInitiators, and not after
/// destroy().
class SoftQp : public ibv_qp_ex, public std::enable_shared_from_this<SoftQp> {
 public:
  using Clock = std::chrono::steady_clock;

  /// A new one, with a number of its own, served from now on; nullptr and errno. The completion queues must be told.
  [[nodiscard]] static std::shared_ptr<SoftQp> create(const Premises& premises, const QpKind& kind,
                                                      const ibv_qp_init_attr& attributes);
  SoftQp(const Premises& premises, SharedBlock block, std::uint32_t qpn, const QpKind& kind,
         const ibv_qp_init_attr& attributes);
  SoftQp(const SoftQp&) = delete;
  SoftQp& operator=(const SoftQp&) = delete;
  ~SoftQp();

  /// An ibv_qp is what an ibv_qp_ex begins with.
  [[nodiscard]] static SoftQp& from(ibv_qp* qp) noexcept {
    return *static_cast<SoftQp*>(reinterpret_cast<ibv_qp_ex*>(qp));
  }
  [[nodiscard]] ibv_qp* verbs() noexcept { return &qp_base; }
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_base.qp_num; }
  /// Inbound slots: the next power of two of what can be posted.
  [[nodiscard]] static std::uint32_t recv_entries(const ibv_qp_init_attr& init) noexcept;

  // qp_states.cc
  int modify(const ibv_qp_attr& attributes, int named);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init);
  void enter_error();
  /// Its completion queue was overrun: enters the error state, and tells of it (QP_FATAL).
  void lose_completions();
  /// Of Service::kXrcQueue: accepts messages from now on.
  void accept_from_all();
  /// Takes the queue pair out of service: no initiator, no poll and no retry touches it afterwards.
  void destroy();

  /// Multicast groups, as ibv_attach_mcast and ibv_detach_mcast. 0, or an errno value.
  [[nodiscard]] int join(const ibv_gid& group);
  [[nodiscard]] int leave(const ibv_gid& group);
  [[nodiscard]] bool in_groups() { return !groups_.empty(); }

  // qp_send.cc
  int post_send(ibv_send_wr* wr, ibv_send_wr** bad) noexcept;
  /// Posts all, or nothing: 0, or why not.
  int post_all(std::span<ibv_send_wr> requests) noexcept;
  int poll_sends(int count, ibv_wc* out) noexcept;
  /// Completions that wait for poll_sends(), poll_receives(). Under the completion queue's lock.
  /// They may stop counting at `enough`.
  [[nodiscard]] int waiting_sends(int enough) const noexcept;
  [[nodiscard]] int waiting_receives(int enough) const noexcept;
  [[nodiscard]] bool has_pending() const noexcept { return pending_count_.load(std::memory_order_relaxed) != 0; }
  /// Whether there is a reason to call retry_pending().
  [[nodiscard]] bool needs_retries() const noexcept {
    return has_pending() && !under_way_.load(std::memory_order_relaxed);
  }
  /// Tries the waiting requests again, as the retrying thread does. false: their target has yet to be found.
  bool retry_pending() noexcept;
  /// Looks for the target, for as long as that takes, and tries them again then.
  void find_target() noexcept;

  /// Offers the calls ibv_wr_* for these operations (IBV_QP_EX_WITH_*).
  void post_by_calls(std::uint64_t operations);
  [[nodiscard]] bool posts_by_calls() const noexcept { return builder_ != nullptr; }
  /// Only where posts_by_calls().
  [[nodiscard]] RequestBuilder& builder() noexcept { return *builder_; }

  // qp_recv.cc
  int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
  int poll_receives(int count, ibv_wc* out) noexcept;
  /// The registration with this key is gone: where a posted receive has it, no message may be handed over before the
  /// sender has looked at that receive.
  void expect_refusal(std::uint32_t key) noexcept;

  [[nodiscard]] std::uint32_t pd_number() const noexcept { return pd_number_; }
  /// For the thread that destroys it, and until then for any.
  [[nodiscard]] SoftSrq* shared_receives() const noexcept { return srq_; }
  /// The same; nullptr: it is in none.
  [[nodiscard]] SoftXrcd* xrc_domain() const noexcept { return xrc_domain_; }
  [[nodiscard]] const ibv_qp_cap& capabilities() const noexcept { return capabilities_; }

  /// This queue pair for initiators of this host.
  [[nodiscard]] QpInitiators& initiators() noexcept { return initiators_; }
  [[nodiscard]] std::shared_ptr<InitiatorTarget> as_initiator_target() { return {shared_from_this(), &initiators_}; }

  // For the serving thread, which must not wait for the send queue's lock.
  /// Asks the retrying thread to move the queue pair to ERR, if it has not been RESET since. false: it has.
  [[nodiscard]] bool request_failure(std::uint32_t life) noexcept {
    if (view_.shared->life.load(std::memory_order_relaxed) != life) return false;
    failed_life_.store(life, std::memory_order_release);
    return true;
  }
  /// For the retrying thread.
  void fail_if_requested() noexcept;

  /// This queue pair for other hosts' requests, and for the connections to them.
  [[nodiscard]] std::shared_ptr<TcpOwner> as_tcp_owner() { return {shared_from_this(), &tcp_}; }

  /// Tells the application of an asynchronous event.
  void raise(ibv_event_type type);
  EventSource events;
  std::atomic<int> handles{1};  ///< how often it was created or opened (ibv_open_qp)

 private:
  friend class QpInitiators;  // looks at what initiators fill, and at both queues
  friend class QpTcp;         // works on the requests that wait, and completes them

  /// A finished request of the send queue, until poll takes it.
  struct SendRecord {
    std::uint64_t wr_id;
    std::uint32_t bytes;
    std::uint8_t opcode;  // ibv_wc_opcode
    std::uint8_t status;  // ibv_wc_status
    bool signaled;
  };
  /// A request that waits, with copies of what the caller owns.
  struct WaitingRequest {
    ibv_send_wr wr{};
    std::vector<ibv_sge> slices;
    std::vector<std::byte> inline_payload;
    SoftAh address;
  };

  // qp_states.cc
  int to_rtr(const ibv_qp_attr& attributes);
  int connect_by_tcp();
  [[nodiscard]] LocalEnd own_end() noexcept;
  int reset();
  void forget_life();
  void stay_in_error();
  void store_attributes(const ibv_qp_attr& attributes, int mask);
  void publish_attributes() noexcept;
  void enter_error_locked() noexcept;
  void fail_locked() noexcept;
  void fail_sends_locked() noexcept;
  [[nodiscard]] std::unique_ptr<Wire> make_wire(int& error);

  // qp_send.cc
  [[nodiscard]] int check_sendable() const noexcept;
  [[nodiscard]] bool executes_at_once() const noexcept;
  [[nodiscard]] std::uint32_t send_room() const noexcept;
  [[nodiscard]] bool has_room_for_slices(const ibv_send_wr& wr) const noexcept;
  [[nodiscard]] bool has_nothing_to_check(const ibv_send_wr& wr) const noexcept;
  [[nodiscard]] int check_send(const ibv_send_wr& wr) const noexcept;
  [[nodiscard]] ExecResult execute_here(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult execute(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult execute_placed(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult reconsider(const ibv_send_wr& wr, ExecResult result) noexcept;
  [[nodiscard]] int post_list(ibv_send_wr*& wr) noexcept;
  void execute_or_keep(const ibv_send_wr& wr) noexcept;
  void settle(const ibv_send_wr& wr, ExecResult result) noexcept;
  [[gnu::noinline]] void settle_otherwise(const ibv_send_wr& wr, ExecResult result) noexcept;
  void keep(const ibv_send_wr& wr) noexcept;
  void finish(const ibv_send_wr& wr, ibv_wc_status status, std::uint32_t bytes) noexcept;
  /// Where there are more completions than before. With the send queue held: after destroy() the completion queue may be gone.
  void notify_sender(std::uint32_t reported_before) noexcept {
    if (send_reported_ != reported_before) notify_of_sends();
  }
  void notify_of_sends() noexcept;
  void flush_pending() noexcept;
  [[gnu::noinline]] void retry_while_polled() noexcept;
  void retry_pending_locked(std::size_t most = SIZE_MAX) noexcept;
  [[nodiscard]] bool give_up(ExecOutcome outcome, ibv_wc_status& status) noexcept;
  [[nodiscard]] std::chrono::nanoseconds patience(ExecOutcome outcome) const noexcept;
  void settle_first(const ExecResult& result) noexcept;

  // qp_recv.cc
  /// Messages of more than that many bytes are not handed over before the sender has looked at the receive.
  [[nodiscard]] ReceiveMemory memory() const noexcept;
  /// false: the slot says that it took a receive which is not posted. Nothing of it is used.
  [[nodiscard]] bool deliver(InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept;
  [[nodiscard, gnu::noinline]] bool can_flush(std::uint32_t position) const noexcept;
  static void check_length(ibv_wc& wc) noexcept;
  void name_sender(InSlot& slot, ibv_wc& wc) const noexcept;
  /// A receive failed that a message to queue pair `qpn` took: this one, or one whose messages arrive here.
  void fail_receiver(std::uint32_t qpn) noexcept;
  void deliver_own(const InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept;
  void deliver_shared(const InSlot& slot, SlotHead head, std::uint32_t entry, ibv_wc& wc) noexcept;
  /// Gives the shared receive queue what messages took that nobody will poll any more.
  void return_shared_receives() noexcept;

  const MrTable& registrations_;
  const Premises& premises_;
  const bool late_;
  const Service service_;
  Memberships groups_;
  SharedBlock block_;
  QpView view_;
  const std::uint32_t pd_number_;
  SoftXrcd* const xrc_domain_;
  const ibv_qp_cap capabilities_;
  const bool signal_all_;
  ibv_qp_attr attributes_{};
  SoftCq& send_queue_;
  SoftCq& recv_queue_;
  SoftSrq* const srq_;  // nullptr: its receives are its own; not to be touched after destroy()

  // Send queue: positions count from 0 and wrap; finished_ <= posted, freed <= finished.
  BiasedLock send_lock_;
  std::atomic<std::uint32_t> failed_life_{0};    // that the initiator has found a failure in; 0: none
  std::atomic<std::uint32_t> initiator_qpn_{0};  // the queue pair this one is connected to
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::unique_ptr<Wire> wire_;  // nullptr where tcp_ has one
  Route route_;
  bool keeps_all_ = late_;  // no request is carried out while it is posted
  std::unique_ptr<RequestBuilder> builder_;
  std::vector<SendRecord> sends_;
  std::uint32_t send_mask_;
  std::uint32_t send_posted_ = 0;
  std::uint32_t send_reported_ = 0;  // finished requests that have a completion
  bool sends_failed_ = false;        // since the queue was notified last
  ReusingQueue<WaitingRequest> pending_;
  std::atomic<std::uint32_t> pending_count_{0};
  std::atomic<bool> under_way_{false};  // all are on their way to another host, and nothing holds them up
  Clock::time_point give_up_at_{};      // for the first waiting request
  ExecOutcome waiting_for_ = ExecOutcome::kDone;
  alignas(64) std::atomic<std::uint32_t> send_finished_{0};
  alignas(64) std::uint32_t send_scanned_ = 0;  // under the send completion queue's lock
  std::atomic<std::uint32_t> send_freed_{0};

  // Receive queue.
  SpinLock recv_lock_;
  ReceiveTable receives_;
  alignas(64) std::atomic<std::uint32_t> recv_posted_{0};
  alignas(64) std::atomic<std::uint32_t> recv_polled_{0};

  QpInitiators initiators_{*this};
  QpTcp tcp_;
};

}  // namespace rdmacomm::softdev
