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

/// Serves endpoints on one CompletionQueue. It calls on_established when an endpoint is established, then the
/// completion hooks. When the endpoint has ended, it delivers the flushed completions and calls on_disconnected. For
/// endpoints that are never established no hook is called. If an endpoint has several queues, the thread of
/// EndPointCore::queue() leads. The other threads call hooks only after its on_established has returned, and finish
/// before its on_disconnected.
/// Threads: any thread, except the destructor.
class CompletionThread {
 public:
  /// Is notified, on the completion thread, when an endpoint or the thread itself has ended.
  class Owner {
   public:
    virtual ~Owner() = default;
    virtual void endpoint_ended(EndPointCore& endpoint) = 0;
    virtual void completion_thread_ended() = 0;
  };

  /// The session of an endpoint. The endpoints of one thread may be of different sessions.
  struct Session {
    const GuardedHooks& hooks;
    Owner& owner;
  };

  /// owner  is notified when the thread ends
  CompletionThread(std::shared_ptr<CompletionQueue> queue, Owner& owner, InsideThreads& inside);
  CompletionThread(const CompletionThread&) = delete;
  CompletionThread& operator=(const CompletionThread&) = delete;
  ~CompletionThread();  // calls finish(), and waits until the thread has ended

  /// index  position of this thread among those with the same options: used for its name and its CPU
  /// Returns  as start_thread and pin_thread; after an error the object cannot be used
  [[nodiscard]] Status start(const ThreadOptions& options, std::size_t index);
  /// Serves `endpoint` until it has ended. This queue is one of its queues. Its queue pairs must not be connected yet.
  void add(std::shared_ptr<EndPointCore> endpoint, const Session& session);
  /// No further endpoints will be added: the thread ends when all its endpoints have ended.
  void finish();
  /// finish(), and also stops its endpoints, of all sessions.
  void end();

  [[nodiscard]] const std::shared_ptr<CompletionQueue>& queue() const noexcept { return queue_; }
  [[nodiscard]] bool ended() const noexcept { return ended_.load(std::memory_order_acquire); }

 private:
  struct Member : ChannelServer {
    Member(std::shared_ptr<EndPointCore> endpoint_, const Session& session_)
        : endpoint(std::move(endpoint_)), handle(endpoint), session(session_) {}

    std::shared_ptr<EndPointCore> endpoint;
    EndPoint handle;  ///< the same endpoint, as a handle for hooks
    Session session;
    bool leads = true;       ///< this thread has the endpoint's main queue: it calls on_established and on_disconnected
    bool announced = false;  ///< on_established was called
    std::vector<Completion> held;      ///< completions that arrived before that
    std::optional<Deadline> draining;  ///< after the end: until when its requests may take to complete
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

  // Used by the thread only.
  std::list<Member> members_;
  bool checking_ = false;      // a member has ended, or may have ended
  std::size_t unchecked_ = 0;  // completions since the last check_members()
  bool draining_ = false;      // whether a member is draining

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  std::vector<Member> added_;
  bool finishing_ = false;
  bool ending_ = false;

  CpuChoice cpu_;
  std::thread thread_;
};

}  // namespace rdmacomm
