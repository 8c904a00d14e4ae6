// completion_thread.h - the thread that polls one completion queue and calls the hooks of its endpoints.
// Private to the session layer.
#pragma once

#include <atomic>
#include <condition_variable>
#include <list>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "channel/channel_core.h"
#include "channel/completion_queue.h"
#include "endpoint/endpoint_core.h"
#include "rdmacomm/channel.h"
#include "rdmacomm/session.h"
#include "session/cpu_choice.h"
#include "session/guarded_hooks.h"
#include "session/session_threads.h"

namespace rdmacomm {

/// Serves endpoints on one CompletionQueue: on_established once an endpoint is, the completion hooks, then, when it has
/// ended, its flushed completions and on_disconnected. Endpoints that are never established call no hook.
/// Of an endpoint with several queues, the thread of EndPointCore::queue() leads: the others call hooks when its
/// on_established has returned, and have called their last before its on_disconnected.
/// Threads: all functions from any, but the destructor.
class CompletionThread {
 public:
  /// Is told, on the thread, what has ended.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void endpoint_ended(EndPointCore& endpoint) = 0;
    virtual void completion_thread_ended() = 0;
  };

  /// The session of an endpoint: they may differ.
  struct Session {
    const GuardedHooks& hooks;
    Owner& owner;
  };

  /// owner  is told of the thread's end
  CompletionThread(std::shared_ptr<CompletionQueue> queue, Owner& owner, InsideThreads& inside);
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;
  ~CompletionThread();  // finish(), and waits for the end

  /// index  of this thread among those of these options: a number for its name, and which of the CPUs is its
  /// Returns  as start_thread and pin_thread; no use can be made of it then
  [[nodiscard]] Status start(const ThreadOptions& options, std::size_t index);
  /// Serves `endpoint`, one of whose queues is this one, with queue pairs that are not connected yet, until it has
  /// ended.
  void add(std::shared_ptr<EndPointCore> endpoint, const Session& session);
  /// Nothing more will be added: the thread ends when all its endpoints have.
  void finish();
  /// finish(), and its endpoints are stopped, whosesoever they are.
  void end();

  [[nodiscard]] const std::shared_ptr<CompletionQueue>& queue() const noexcept { return queue_; }
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  struct Member : ChannelServer {
    Member(std::shared_ptr<EndPointCore> endpoint_, const Session& session_)
        : endpoint(std::move(endpoint_)), handle(endpoint), session(session_) {}

    std::shared_ptr<EndPointCore> endpoint;
    EndPoint handle;  ///< the same, as hooks are given it
    Session session;
    bool leads = true;                 ///< this thread's queue is the endpoint's: it tells of beginning and end
    bool announced = false;            ///< on_established was called
    std::vector<Completion> held;      ///< completions that came before that
    std::optional<Deadline> draining;  ///< until when its requests may take to come out
  };

  void run();
  bool all_done();
  void take_added();
  void stop_members();
  [[nodiscard]] Member* member_of(RDMAChannel& channel);
  [[nodiscard]] bool ready_to_end(const Member& member) const;
  void dispatch(std::span<const Completion> completions);
  static void give_back(std::span<const Completion> completions);
  void announce(Member& member);
  void check_members(bool queue_is_empty);
  void give_up();
  void begin_end(Member& member);
  void end_member(Member& member);
  void drain(Member& member, Deadline until);
  [[nodiscard]] Deadline next_deadline() const;

  const std::shared_ptr<CompletionQueue> queue_;
  Owner& owner_;
  InsideThreads& inside_;
  std::atomic<bool> ended_{false};

  // The thread's own.
  std::list<Member> members_;
  bool tending_ = false;      // some member has ended, or may have
  std::size_t untended_ = 0;  // completions since check_members()
  bool draining_ = false;     // some member is

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::vector<Member> added_;
  bool finishing_ = false;
  bool ending_ = false;

  CpuChoice cpu_;
  std::thread thread_;
};

}  // namespace rdmacomm
