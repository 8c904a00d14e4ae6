// soft_qp.h - a queue pair: its two queues, its states, its retries.
#pragma once

#include <infiniband/verbs.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
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
#include "softdev/queues/request_builder.h"
#include "softdev/shared/control_protocol.h"
#include "softdev/shared/layout.h"
#include "softdev/shared/shared_file.h"
#include "softdev/tcp/tcp_pairing.h"
#include "softdev/tcp/tcp_wire.h"

namespace rdmacomm::softdev {

class SoftContext;
class SoftCq;
class SoftSrq;
class SoftXrcd;
class TcpConnection;

/// What is settled when a queue pair is created, beside its ibv_qp_init_attr.
struct QpKind {
  Service service = Service::kReliable;
  std::uint32_t pd_number = 0;     ///< 0: it has none
  SoftXrcd* xrc_domain = nullptr;  ///< of IBV_QPT_XRC_RECV, and of Service::kXrcQueue
};

/// A queue pair, RC, UC, UD or XRC; or the receiving side of an XRC shared receive queue, to which no handle is given
/// out (Service::kXrcQueue): a queue pair that receives alone, from many initiators in turn. Requests are executed by
/// the thread that posts them, in order; one that cannot be executed yet (receiver not ready, target not reachable)
/// waits with all that come after it, and is tried again by the retrying thread and by poll_cq. In a context that is
/// late, all wait for these. Requests to another host are kept until they are answered; the context's TcpService calls
/// when there is something to do for them.
///
/// Threads: any. Locks, outermost first: the completion queue's, the send queue's.
/// Lifetime: shared; destroy() takes it out of service, the memory goes with the last user. The device's own threads
/// may be that, so they touch the completion queues under the send queue's lock or service_mutex_, and not after
/// destroy().
class SoftQp : public ibv_qp_ex, public std::enable_shared_from_this<SoftQp> {
 public:
  using Clock = std::chrono::steady_clock;

  /// A new one, with a number of its own, served from now on; nullptr and errno. The completion queues must be told.
  [[nodiscard]] static std::shared_ptr<SoftQp> create(SoftContext& context, const QpKind& kind,
                                                      const ibv_qp_init_attr& attributes);
  SoftQp(SoftContext& context, SharedBlock block, std::uint32_t qpn, const QpKind& kind,
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
  /// Goes on with requests to other hosts, when there is something to send or to receive.
  void advance() noexcept;
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
  /// Wakes whoever sleeps on the receive completion queue: there may be something to flush.
  void notify_receiver() noexcept;
  /// The process of an initiator has died: see SoftCq::make_up_for_event(). Not again for a queue that is among `done`.
  void make_up_for_event(std::vector<const SoftCq*>& done) noexcept;

  [[nodiscard]] std::uint64_t segment_offset() const noexcept { return block_.offset; }
  [[nodiscard]] std::uint32_t pd_number() const noexcept { return pd_number_; }
  [[nodiscard]] std::uint32_t path_mtu() const noexcept {
    return view_.shared->path_mtu.load(std::memory_order_relaxed);
  }
  /// For the thread that destroys it, and until then for any.
  [[nodiscard]] SoftSrq* shared_receives() const noexcept { return srq_; }
  /// The same; nullptr: it is in none.
  [[nodiscard]] SoftXrcd* xrc_domain() const noexcept { return xrc_domain_; }
  /// For the serving thread: an initiator has found few receives left.
  void raise_srq_limit();
  [[nodiscard]] const ibv_qp_cap& capabilities() const noexcept { return capabilities_; }

  // The initiator at the other end: who holds the hazard flag up.
  [[nodiscard]] bool busy() const noexcept { return view_.shared->busy.load(std::memory_order_seq_cst) != 0; }
  /// The process of `initiator_qpn` is gone: whatever it was doing here, it is not doing it any more. false: that is
  /// not the queue pair that this one is connected to, and the flag is not its.
  bool forget_initiator(std::uint32_t initiator_qpn) noexcept;
  /// How the initiator is waited for. Whichever: one that is known to be stopped is not waited for again.
  enum class Wait : std::uint8_t {
    kBounded,         ///< until the deadline
    kUnlessByAddress  ///< longer, while it may be writing to memory by its address
  };
  /// Waits, asleep, until no initiator is at work here. false: it does not let go, and is one of the context's
  /// Stragglers from now on.
  [[nodiscard]] bool wait_for_initiators(Clock::time_point deadline, Wait how = Wait::kBounded) noexcept;
  /// The same, where the caller has called await_visibility() already, once for many queue pairs.
  [[nodiscard]] bool wait_for_seen_initiators(Clock::time_point deadline, Wait how = Wait::kBounded) noexcept;
  [[nodiscard]] bool wait_for_initiators() noexcept;
  /// The same, and then until no thread of this process is at work on a request or a completion of this queue pair.
  [[nodiscard]] bool wait_until_idle(Clock::time_point deadline, Wait how) noexcept;
  [[nodiscard]] bool wait_until_seen_idle(Clock::time_point deadline, Wait how) noexcept;
  // For the Stragglers.
  void set_left_behind(bool is) noexcept { left_behind_.store(is, std::memory_order_relaxed); }
  /// Its initiator has let go: what was left undone, where the queue pair has been destroyed.
  void settle_after_destruction() noexcept;
  /// The shared receive queue is destroyed.
  void forget_shared_receives(const SoftSrq& queue) noexcept;
  /// What an initiator must know to map this queue pair. false: destroyed.
  [[nodiscard]] bool describe(Answer& answer);
  /// What wakes its receiver, duplicated. 0, or an errno value.
  [[nodiscard]] int channel_descriptor(UniqueFd& wake_fd);

  // For the serving thread, which must not wait for the send queue's lock.
  /// Asks the retrying thread to move the queue pair to ERR, if it has not been RESET since. false: it has.
  [[nodiscard]] bool request_failure(std::uint32_t life) noexcept {
    if (view_.shared->life.load(std::memory_order_relaxed) != life) return false;
    failed_life_.store(life, std::memory_order_release);
    return true;
  }
  /// For the retrying thread.
  void fail_if_requested() noexcept;

  // For the serving of other hosts' requests.
  /// Whether it accepts requests by TCP of queue pair `initiator_qpn` at address `from`.
  [[nodiscard]] bool expects(std::uint32_t initiator_qpn, Service service, const ibv_gid& from) noexcept;
  /// Whether this queue pair has sent that greeting to `target_qpn`.
  [[nodiscard]] bool has_greeted(std::uint32_t target_qpn, std::uint64_t token) noexcept;
  /// Whether the initiator that has shown this secret is the one that it is connected to. `own`: the secret to be shown
  /// to it.
  [[nodiscard]] bool admits(const TcpSecret& shown, TcpSecret& own) noexcept;
  /// Somebody who greets as its peer is asked back. false: somebody is already.
  [[nodiscard]] bool begin_question() noexcept { return !is_questioned_.exchange(true, std::memory_order_relaxed); }
  void end_question() noexcept { is_questioned_.store(false, std::memory_order_relaxed); }
  /// The other end, whose part that is not, asks this one to connect.
  void connect_now() noexcept;
  /// It is this one's part to connect, and not the other end's.
  [[nodiscard]] bool connects() noexcept;
  /// Its connection to another host carries requests one way alone.
  [[nodiscard]] bool is_one_way() noexcept;
  /// Goes by this connection from now on; what the one before has brought is heard first.
  void adopt(const std::shared_ptr<TcpConnection>& connection) noexcept;
  // What the connection has brought for this queue pair's own requests, see TcpWire. false: no target that follows the
  // protocol says that.
  [[nodiscard]] bool heard(TcpConnection& connection, std::uint32_t done) noexcept;
  [[nodiscard]] bool take(TcpConnection& connection, const TcpAnswer& answer) noexcept;
  /// The next of `left` bytes that a READ of its brings.
  [[nodiscard]] Moved bring(TcpConnection& connection, TcpInput& input, std::uint32_t left) noexcept;
  void lose(TcpConnection& connection) noexcept;
  /// It is over because of this end; for_good: this queue pair has failed, and takes no other.
  void leave(TcpConnection& connection, bool for_good) noexcept;
  /// Has the connection send what it can.
  void send_by(TcpConnection& connection) noexcept;
  [[nodiscard]] BiasedLock& send_lock() noexcept { return send_lock_; }
  /// Messages that have come to this queue pair, and that were polled.
  [[nodiscard]] std::uint32_t messages_arrived() const noexcept { return view_.shared->taken; }
  [[nodiscard]] std::uint32_t messages_polled() const noexcept { return recv_polled_.load(std::memory_order_relaxed); }

  /// Tells the application of an asynchronous event.
  void raise(ibv_event_type type);
  EventSource events;
  std::atomic<int> handles{1};  ///< how often it was created or opened (ibv_open_qp)

 private:
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
  int check_modify(const ibv_qp_attr& attributes, int mask, ibv_qp_state from, ibv_qp_state to) const;
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
  [[nodiscard]] bool may_be_at_work() const noexcept;
  [[nodiscard]] bool may_write_still(std::uint32_t flag, Clock::time_point now,
                                     std::optional<Clock::time_point>& end) noexcept;
  void fail_sends_locked() noexcept;
  /// The initiator that was at work here died: the next one finds the slot that it had begun to fill.
  void withdraw_unpublished() noexcept;
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
  /// Where there are more completions than before. With the send queue held: after destroy() the completion queue may
  /// be gone.
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
  [[nodiscard]] bool is_one_way_locked() const noexcept;
  void advance_by_tcp_locked() noexcept;
  void start_by_tcp_locked() noexcept;
  void take_answers_locked() noexcept;
  template <typename Work>
  auto with_wire(TcpConnection& connection, Work&& work) noexcept;

  // qp_recv.cc
  /// Messages of more than that many bytes are not handed over before the sender has looked at the receive.
  [[nodiscard]] ReceiveMemory memory() const noexcept;
  /// false: the slot says that it took a receive which is not posted. Nothing of it is used.
  [[nodiscard]] bool deliver(InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept;
  static void check_length(ibv_wc& wc) noexcept;
  void name_sender(InSlot& slot, ibv_wc& wc) const noexcept;
  /// A receive failed that a message to queue pair `qpn` took: this one, or one whose messages arrive here.
  void fail_receiver(std::uint32_t qpn) noexcept;
  void deliver_own(const InSlot& slot, SlotHead head, std::uint32_t position, ibv_wc& wc) noexcept;
  void deliver_shared(const InSlot& slot, SlotHead head, std::uint32_t entry, ibv_wc& wc) noexcept;
  /// Gives the shared receive queue what messages took that nobody will poll any more.
  void return_shared_receives() noexcept;

  SoftContext& soft_context_;
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
  std::mutex service_mutex_;
  SoftSrq* served_srq_;                   // under service_mutex_: srq_, until it may be gone
  bool destroyed_ = false;                // under service_mutex_: the completion queues are not to be touched any more
  std::atomic<bool> left_behind_{false};  // its initiator is one of the Stragglers
  std::atomic<Clock::time_point> writes_end_{};  // of its initiator that were taken back, at the latest
  std::atomic<std::uint32_t> failed_life_{0};    // that the initiator has found a failure in; 0: none
  std::atomic<std::uint32_t> initiator_qpn_{0};  // the queue pair this one is connected to
  std::atomic<ibv_qp_state> state_{IBV_QPS_RESET};
  std::unique_ptr<Wire> wire_;  // nullptr where tcp_ is there
  TcpPairing pairing_;          // with a queue pair of another host
  std::atomic<bool> is_questioned_{false};
  // TcpService's thread does not wait for the send queue of another one, which may be looking for a process that is
  // stopped.
  std::atomic<bool> goes_by_tcp_{false};
  std::unique_ptr<TcpWire> tcp_;  // connected to another host
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
  std::atomic<bool> under_way_{false};  // tcp_ has them all, and nothing holds them up
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
};

}  // namespace rdmacomm::softdev
