// soft_qp.h - a queue pair: its two queues, its states and its retries.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "base/biased_lock.h"
#include "base/spin_lock.h"
#include "base/unique_fd.h"
#include "softdev/common/event_queue.h"
#include "softdev/common/qp_ex.h"
#include "softdev/common/reusing_queue.h"
#include "softdev/faults/qp_faults.h"
#include "softdev/host/multicast.h"
#include "softdev/host/soft_ah.h"
#include "softdev/host/traffic.h"
#include "softdev/local/wire.h"
#include "softdev/memory/posted_receive.h"
#include "softdev/queues/qp_initiators.h"
#include "softdev/queues/qp_tcp.h"
#include "softdev/queues/request_builder.h"
#include "softdev/shared/arrival_stamp.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"

namespace rdmacomm::softdev {

class DatagramWire;
class MrTable;
class SoftCq;
class SoftSrq;
class SoftXrcd;
struct Premises;

/// The fixed properties of a queue pair, in addition to its ibv_qp_init_attr.
struct QpKind {
  Service service = Service::kReliable;
  std::uint32_t pd_number = 0;     ///< 0: none
  SoftXrcd* xrc_domain = nullptr;  ///< for IBV_QPT_XRC_RECV and Service::kXrcQueue
};

/// A queue pair of type RC, UC, UD or XRC. Or the receiving end of an XRC shared receive queue (Service::kXrcQueue): it
/// has no handle, and only receives, from many initiators in turn.
///
/// The posting thread executes requests, in order. If a request cannot be executed yet (receiver not ready, target not
/// reachable), it waits with all later requests. The retrying thread and poll_cq try it again. In a late context, every
/// request waits for the retrying thread or poll_cq. Requests to another host are kept until they are answered, see
/// QpTcp.
///
/// Threads: any. Locks, outermost first: the completion queue's, the send queue's.
/// Lifetime: shared. destroy() takes it out of service, and its last user frees the memory. The device's own threads
/// may be the last user. So they access the completion queues only under the send queue's lock or through QpInitiators,
/// and not after destroy().
class SoftQp : public QpEx, public std::enable_shared_from_this<SoftQp> {
 public:
  using Clock = std::chrono::steady_clock;

  /// Creates a queue pair with a new number, served from now on; nullptr and errno on failure. The caller must attach
  /// it to the completion queues.
  [[nodiscard]] static std::shared_ptr<SoftQp> create(const Premises& premises, const QpKind& kind,
                                                      const ibv_qp_init_attr& attributes);
  SoftQp(const Premises& premises, SharedBlock block, std::uint32_t qpn, const QpKind& kind,
         const ibv_qp_init_attr& attributes);
  SoftQp(const SoftQp&) = delete;
  SoftQp& operator=(const SoftQp&) = delete;
  ~SoftQp();

  /// The first member of an ibv_qp_ex is an ibv_qp.
  [[nodiscard]] static SoftQp& from(ibv_qp* qp) noexcept {
    return *static_cast<SoftQp*>(reinterpret_cast<ibv_qp_ex*>(qp));
  }
  [[nodiscard]] ibv_qp* verbs() noexcept { return &qp_base; }
  [[nodiscard]] std::uint32_t number() const noexcept { return qp_base.qp_num; }
  /// The number of inbound slots: the next power of two of the receive depth.
  [[nodiscard]] static std::uint32_t recv_entries(const ibv_qp_init_attr& init) noexcept;

  // qp_states.cc
  int modify(const ibv_qp_attr& attributes, int named);
  void query(ibv_qp_attr& attributes, ibv_qp_init_attr& init);
  void enter_error();
  /// Its completion queue has overrun: enters the error state and raises QP_FATAL.
  void lose_completions();
  /// The port is up or down now. While it is down, no request leaves and none arrives: both kinds are retried. Only for
  /// devices that belong to an interface.
  void set_port_up(bool up);
  /// For Service::kXrcQueue: accepts messages from now on.
  void accept_from_all();
  /// Takes the queue pair out of service: no initiator, poll or retry accesses it afterwards.
  void destroy();

  /// Multicast groups, as ibv_attach_mcast and ibv_detach_mcast. Returns 0, or an errno value.
  [[nodiscard]] int join(const ibv_gid& group);
  [[nodiscard]] int leave(const ibv_gid& group);
  [[nodiscard]] bool in_groups() { return !groups_.empty(); }

  // qp_send.cc
  int post_send(ibv_send_wr* wr, ibv_send_wr** bad) noexcept;
  /// Posts all requests or none. Returns 0, or an errno value.
  int post_all(std::span<ibv_send_wr> requests) noexcept;
  int poll_sends(int count, ibv_wc* out) noexcept;
  /// The number of completions that wait for poll_sends() or poll_receives(). Called under the completion queue's lock.
  /// May stop counting at `enough`.
  [[nodiscard]] int waiting_sends(int enough) const noexcept;
  [[nodiscard]] int waiting_receives(int enough) const noexcept;
  /// The number of finished requests that polls have passed. Called under the completion queue's lock.
  [[nodiscard]] std::uint32_t sends_scanned() const noexcept { return send_scanned_; }
  /// From now on, writes SenderNews::word() to `word` when it changes. nullptr: no longer.
  void report_news_at(std::atomic<std::uint32_t>* word) noexcept;
  [[nodiscard]] bool has_pending() const noexcept { return pending_count_.load(std::memory_order_relaxed) != 0; }
  /// True if retry_pending() may have an effect.
  [[nodiscard]] bool needs_retries() const noexcept {
    return has_pending() && !under_way_.load(std::memory_order_relaxed);
  }
  /// Retries the waiting requests, on the retrying thread. Returns false: their target must be found first.
  bool retry_pending() noexcept;
  /// Looks for the target, waits for its answer if necessary, and then retries the requests.
  void find_target() noexcept;

  /// Enables the ibv_wr_* calls for these operations (IBV_QP_EX_WITH_*).
  void post_by_calls(std::uint64_t operations);
  [[nodiscard]] bool posts_by_calls() const noexcept { return builder_ != nullptr; }
  /// Only if posts_by_calls().
  [[nodiscard]] RequestBuilder& builder() noexcept { return *builder_; }

  // qp_recv.cc
  int post_recv(ibv_recv_wr* wr, ibv_recv_wr** bad) noexcept;
  int poll_receives(int count, ibv_wc* out) noexcept;
  /// Polls the first receive, and those after it with a stamp before `end`.
  int poll_receives_before(std::uint64_t end, int count, ibv_wc* out) noexcept;
  /// The next message that poll_receives() will return, once it has arrived. Called under the completion queue's lock.
  [[nodiscard]] NextMessage next_message() const noexcept {
    const std::uint32_t position = recv_polled_.load(std::memory_order_relaxed);
    return {&view_.slot(position), position + 1};
  }
  /// In ERR: true if poll_receives() will flush a receive because no message waits.
  [[nodiscard]] bool flushes_receive() const noexcept;
  [[nodiscard]] bool has_failed() const noexcept { return state_.load(std::memory_order_seq_cst) == IBV_QPS_ERR; }
  /// The stamp of the receive that is flushed next: when the queue pair failed, or when the receive was posted, if that
  /// was later.
  [[nodiscard]] std::uint64_t flush_stamp() const noexcept;
  /// How messages get their stamps from now on.
  void stamp_messages(Stamping how) noexcept { view_.shared->stamping.store(how, std::memory_order_relaxed); }
  /// The registration with this key has ended. If a posted receive uses it, senders must check this receive before they
  /// hand over a message.
  void expect_refusal(std::uint32_t key) noexcept;

  [[nodiscard]] std::uint32_t pd_number() const noexcept { return pd_number_; }
  /// For the destroying thread; before destroy() for any thread.
  [[nodiscard]] SoftSrq* shared_receives() const noexcept { return srq_; }
  /// The same; nullptr: none.
  [[nodiscard]] SoftXrcd* xrc_domain() const noexcept { return xrc_domain_; }
  [[nodiscard]] const ibv_qp_cap& capabilities() const noexcept { return capabilities_; }

  /// This queue pair for initiators of this host.
  [[nodiscard]] QpInitiators& initiators() noexcept { return initiators_; }
  [[nodiscard]] std::shared_ptr<InitiatorTarget> as_initiator_target() { return {shared_from_this(), &initiators_}; }

  /// The first request has arrived. Raises COMM_EST, unless the application has found out itself. May be called again.
  void note_contact() noexcept;

  // For the serving thread, which must not wait for the send queue's lock.
  /// Asks the retrying thread to move the queue pair to ERR, unless it has been RESET since. Returns false: it has.
  [[nodiscard]] bool request_failure(std::uint32_t life) noexcept {
    if (view_.shared->life.load(std::memory_order_relaxed) != life) return false;
    failed_life_.store(life, std::memory_order_release);
    return true;
  }
  /// For the retrying thread.
  void fail_if_requested() noexcept;

  /// This queue pair, for requests of other hosts and for connections to them.
  [[nodiscard]] std::shared_ptr<TcpOwner> as_tcp_owner() { return {shared_from_this(), &tcp_}; }

  /// As QpTcp::secret().
  [[nodiscard]] std::optional<TcpSecret> secret() noexcept { return tcp_.secret(); }

  /// As QpFaults::next_hold().
  [[nodiscard]] std::uint32_t next_hold(bool is_receive) {
    return faults_ == nullptr ? 0 : faults_->next_hold(is_receive);
  }

  /// Sends an asynchronous event to the application.
  void raise(ibv_event_type type);
  EventSource events;
  std::atomic<int> handles{1};  ///< number of creations and openings (ibv_open_qp)

 private:
  friend class QpInitiators;  // uses the inbound slots and both queues
  friend class QpTcp;         // executes and completes the waiting requests

  /// A finished request of the send queue, until it is polled.
  struct SendRecord {
    std::uint64_t wr_id;
    std::uint32_t bytes;
    std::uint8_t opcode;  // ibv_wc_opcode
    std::uint8_t status;  // ibv_wc_status
    bool signaled;
  };
  /// A waiting request, with copies of all data that the caller owns.
  struct WaitingRequest {
    ibv_send_wr wr{};
    std::vector<ibv_sge> slices;
    std::vector<std::byte> inline_payload;
    SoftAh address;
    // Only if the queue pair can have faults.
    bool is_begun = false;      // its faults are known
    bool is_not_ready = false;  // it waits for the tries of its faults
    RequestFaults faults;
    Clock::time_point posted_at{};
    Clock::time_point held_until{};
  };

  // qp_states.cc
  int to_rtr(const ibv_qp_attr& attributes);
  int connect_by_tcp();
  /// Its life, if its peer must notice a new one, else 0.
  [[nodiscard]] std::uint32_t counted_life() const noexcept;
  [[nodiscard]] LinkTerms receiving_terms() const noexcept;
  void accept_from_peer() noexcept;
  void begin_requests() noexcept;
  int change_path(const ibv_qp_attr& attributes);
  void drain(bool notify) noexcept;
  void note_drained() noexcept;
  [[nodiscard]] LocalEnd own_end() noexcept;
  int reset();
  void forget_life();
  void stay_in_error();
  void open_link(std::uint64_t word) noexcept;
  void publish_link() noexcept;
  void follow_port_locked() noexcept;
  void store_attributes(const ibv_qp_attr& attributes, int mask);
  void publish_attributes() noexcept;
  void enter_error_locked() noexcept;
  void stamp_failure() noexcept;
  void fail_locked() noexcept;
  void fail_sends_locked() noexcept;
  [[nodiscard]] std::unique_ptr<Wire> make_wire(int& error);
  /// nullptr: it is no queue pair for datagrams, or cannot send yet.
  [[nodiscard]] DatagramWire* datagram_wire() noexcept;
  /// Counts the requests from now on for the device that the wire leads to. Returns 0, or an errno value.
  int choose_cell();

  // qp_send.cc
  [[nodiscard]] int check_sendable() const noexcept;
  [[nodiscard, gnu::noinline]] int device_error() const noexcept;
  [[nodiscard]] bool executes_at_once() const noexcept;
  [[nodiscard]] std::uint32_t send_room() const noexcept;
  [[nodiscard]] bool has_room_for_slices(const ibv_send_wr& wr) const noexcept;
  [[nodiscard]] bool has_nothing_to_check(const ibv_send_wr& wr) const noexcept;
  [[nodiscard]] int check_send(const ibv_send_wr& wr) const noexcept;
  [[nodiscard]] std::uint32_t reads_with_another() const noexcept;
  [[nodiscard, gnu::noinline]] ExecResult execute_unusual(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult execute_here(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult execute(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult execute_placed(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult execute_kept(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] ExecResult reconsider(const ibv_send_wr& wr, ExecResult result) noexcept;
  [[nodiscard]] int post_list(ibv_send_wr*& wr) noexcept;
  void execute_or_keep(const ibv_send_wr& wr) noexcept;
  void settle(const ibv_send_wr& wr, ExecResult result) noexcept;
  void count(const ibv_send_wr& wr, ExecResult result) noexcept;
  void count_wait(ExecOutcome outcome) noexcept;
  [[gnu::noinline]] void settle_otherwise(const ibv_send_wr& wr, ExecResult result) noexcept;
  void store(const ibv_send_wr& wr) noexcept;
  void keep(const ibv_send_wr& wr) noexcept;
  void finish(const ibv_send_wr& wr, ibv_wc_status status, std::uint32_t bytes) noexcept;
  void report_news() noexcept;
  /// Call if there may be more completions than before. Needs the send queue's lock: after destroy() the completion
  /// queue may not exist any more.
  void notify_sender(std::uint32_t reported_before) noexcept {
    if (send_reported_ != reported_before) notify_of_sends();
  }
  void notify_of_sends() noexcept;
  void flush_pending() noexcept;
  [[gnu::noinline]] void retry_while_polled() noexcept;
  void retry_pending_locked(std::size_t most = SIZE_MAX) noexcept;
  [[nodiscard]] bool give_up(ExecOutcome outcome, ibv_wc_status& status) noexcept;
  [[nodiscard]] std::chrono::nanoseconds time_of_tries() const noexcept;
  void keep_or_flush(const ibv_send_wr& wr) noexcept;
  [[nodiscard]] std::chrono::nanoseconds patience(ExecOutcome outcome) const noexcept;
  [[nodiscard]] bool may_continue() const noexcept;
  void log_misconnection() const;
  void settle_first(const ExecResult& result) noexcept;

  // qp_held.cc
  [[nodiscard]] std::array<std::uint8_t, 16> peer_of(const ibv_send_wr& wr) const noexcept;
  void begin(WaitingRequest& waiting) noexcept;
  void cause(const FaultEffect& effect) noexcept;
  void cause_at(pid_t process, const FaultEffect& effect) noexcept;
  /// True if hold_or_fail() may return a result.
  [[nodiscard]] bool has_fault(WaitingRequest& waiting) noexcept;
  /// The result that a fault gives to a request instead of its execution. No value: execute it now.
  [[nodiscard]] std::optional<ExecResult> hold_or_fail(WaitingRequest& waiting) noexcept;
  [[nodiscard]] std::optional<ExecResult> fault_of(WaitingRequest& waiting) noexcept;
  [[nodiscard]] std::optional<ExecResult> hold_by_link(const WaitingRequest& waiting) noexcept;
  [[nodiscard]] std::optional<ExecResult> hold_while_not_ready(WaitingRequest& waiting) noexcept;
  [[nodiscard]] ExecResult fail_by_fault(const WaitingRequest& waiting) noexcept;

  // qp_recv.cc
  /// The registrations that its own receives may use.
  [[nodiscard]] ReceiveMemory memory() const noexcept;
  /// Returns  false: the slot names a receive that is not posted. Then the slot is ignored.
  [[nodiscard]] bool deliver(InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept;
  [[nodiscard, gnu::noinline]] bool can_flush(std::uint32_t position) const noexcept;
  /// Polls receives while `due(stamp)` is true, where `stamp()` is the stamp of the next one.
  template <typename Due>
  int poll_while(Due&& due, int count, ibv_wc* out) noexcept;
  static void check_length(ibv_wc& wc) noexcept;
  void name_sender(InSlot& slot, ibv_wc& wc) const noexcept;
  /// A receive failed that a message to queue pair `qpn` took: this queue pair, or one whose messages arrive here.
  void fail_receiver(std::uint32_t qpn) noexcept;
  void deliver_own(const InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept;
  void deliver_shared(const InSlot& slot, SlotHead head, std::uint32_t entry, ibv_wc& wc) noexcept;
  /// Returns receives to the shared receive queue if their messages will never be polled.
  void return_shared_receives() noexcept;

  const MrTable& registrations_;
  const Premises& premises_;
  const bool late_;
  const std::unique_ptr<QpFaults> faults_;  // nullptr: no rule is about this queue pair
  const bool can_fail_;                     // requests must ask for faults before they are executed
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
  SoftSrq* const srq_;  // nullptr: it has its own receives; not accessed after destroy()

  // Send queue: positions count from 0 and wrap; finished_ <= posted, freed <= finished.
  BiasedLock send_lock_;
  std::atomic<std::uint32_t> failed_life_{0};    // life in which the initiator has found a failure; 0: none
  std::atomic<std::uint32_t> initiator_qpn_{0};  // the queue pair that this one is connected to
  std::atomic<std::uint32_t> contact_life_{0};   // life in which COMM_EST was raised
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::unique_ptr<Wire> wire_;  // nullptr if tcp_ has a wire
  Route route_;
  LinkTerms sending_;                    // of its own requests
  bool keeps_all_ = late_ || can_fail_;  // no request is executed while it is posted
  bool port_is_up_ = true;               // false: the interface of the device is down, and no request leaves
  TrafficCell* traffic_ = nullptr;       // not nullptr in RTR and RTS
  std::uint32_t packet_bytes_ = 0;
  std::unique_ptr<RequestBuilder> builder_;
  std::vector<SendRecord> sends_;
  std::uint32_t send_mask_;
  std::uint32_t send_posted_ = 0;
  std::uint32_t send_reported_ = 0;  // number of finished requests with a completion
  bool sends_failed_ = false;        // since the last notification of the queue
  std::atomic<std::uint32_t> unread_news_{0};
  std::atomic<std::uint32_t>* news_ = &unread_news_;  // see report_news_at()
  ReusingQueue<WaitingRequest> pending_;
  std::atomic<std::uint32_t> pending_count_{0};
  std::atomic<bool> under_way_{false};  // all requests are on their way to another host, and nothing blocks them
  std::size_t draining_ = 0;            // in SQD: the number of requests that have begun
  bool notifies_when_drained_ = false;  // raises SQ_DRAINED
  Clock::time_point give_up_at_{};      // for the first waiting request
  ExecOutcome waiting_for_ = ExecOutcome::kDone;
  // The state of faults: the reason why one holds the first waiting request, and faults that hold all requests.
  ExecOutcome held_by_ = ExecOutcome::kDone;
  bool is_ending_ = false;       // its device or completion queue is about to fail
  bool target_is_gone_ = false;  // the process of the target has been ended
  Clock::time_point target_frozen_until_{};
  alignas(64) std::atomic<std::uint32_t> send_finished_{0};
  alignas(64) std::uint32_t send_scanned_ = 0;  // under the send completion queue's lock
  std::atomic<std::uint32_t> send_freed_{0};

  // Receive queue.
  SpinLock recv_lock_;
  ReceiveTable receives_;
  alignas(64) std::atomic<std::uint32_t> recv_posted_{0};
  alignas(64) std::atomic<std::uint32_t> recv_polled_{0};
  // The stamps of flushed receives: of those posted before the failure, and of those after it.
  std::atomic<std::uint64_t> failure_stamp_{0};
  std::atomic<std::uint64_t> posted_late_stamp_{0};
  std::atomic<std::uint32_t> posted_at_failure_{0};
  // The link word of this life, also while the port is down; 0: none.
  std::uint64_t link_word_ = 0;

  QpInitiators initiators_{*this};
  QpTcp tcp_;
};

}  // namespace rdmacomm::softdev
