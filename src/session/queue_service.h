// queue_service.h - what endpoints of a session share by key, and the threads that serve them. Private to the session layer.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "channel/completion_queue.h"
#include "channel/receive_pool_core.h"
#include "device/device_core.h"
#include "endpoint/endpoint_core.h"
#include "rdmacomm/config.h"
#include "rdmacomm/polling.h"
#include "rdmacomm/result.h"
#include "session/completion_thread.h"
#include "session/guarded_hooks.h"
#include "session/session_threads.h"

namespace rdmacomm {

/// The completion queues of HcaConfig::shared_queue_key and the receive pools of receive_pool_key, and a thread for each completion
/// queue that has one. Another session's endpoints may be on these queues (SessionOptions::queues_of): it is their guest.
/// Threads: all functions from any.
class QueueService {
 public:
  /// hooks  of the session's endpoints
  /// owner  is told what has ended
  /// host   whose shared completion queues this session uses; nullptr: its own. It lives longer
  QueueService(const GuardedHooks& hooks, CompletionThread::Owner& owner, QueueService* host);
  QueueService(const QueueService&) = delete;
  QueueService& operator=(const QueueService&) = delete;
  ~QueueService();

  /// Before all others but serves_here().
  void open(std::shared_ptr<DeviceCore> device);

  /// The queue of the key with the fewest endpoints, or a new one, if the key may have more and none is free.
  /// Returns  kInvalidArgument: it was made with other values; kStopped; or as CompletionQueue::create and start_thread
  [[nodiscard]] Result<std::shared_ptr<CompletionQueue>> shared_queue(const HcaConfig& config);
  /// The pool of the key; made by the first endpoint that asks for it.
  /// Returns  kInvalidArgument: it was made with other values; kStopped; or as ReceivePoolCore::create
  [[nodiscard]] Result<std::shared_ptr<ReceivePoolCore>> receive_pool(const HcaConfig& config);
  /// Has an endpoint's completion queues served as its ThreadMode says, from now until it has ended.
  /// Returns  kStopped; as start_thread
  [[nodiscard]] Status serve(const std::shared_ptr<EndPointCore>& endpoint);
  /// The same for queues that an endpoint gets later. It may outlive this service, and is told kStopped then.
  [[nodiscard]] std::shared_ptr<QueueServer> queue_server() const noexcept;
  /// To be called as the last thing that is done with a served endpoint of the session: end() waits for it.
  void endpoint_ended(const EndPointCore& endpoint);

  /// Whether this thread serves endpoints of this session.
  [[nodiscard]] bool serves_here() const;
  /// Joins the threads that have ended.
  void reap();
  /// Nothing can be asked for any more.
  void close();
  /// close(). Ends the threads, and with them the endpoints on their queues, of whichever session; waits for those of this session's
  /// endpoints that a host serves.
  void end();

  // Receive pools that run low ------------------------------------------------------------------------------------

  /// The device says so of a queue. Returns  whether it is a pool's
  bool note_low(const ibv_srq* queue);
  /// Those that have run low since the last call.
  [[nodiscard]] std::vector<std::shared_ptr<ReceivePoolCore>> take_low();

 private:
  /// The completion queues of one key. They stay until the session stops.
  struct SharedQueues {
    PollingMode polling_mode = PollingMode::kBusyPoll;
    int most = 1;
    std::vector<CompletionThread*> threads = {};
  };

  class Link;

  [[nodiscard]] Status serve_queue(const std::shared_ptr<EndPointCore>& endpoint,
                                   const std::shared_ptr<CompletionQueue>& queue);
  [[nodiscard]] Result<std::shared_ptr<CompletionQueue>> new_queue_locked(SharedQueues& shared,
                                                                          const HcaConfig& config);
  [[nodiscard]] Status serve_queue_locked(const std::shared_ptr<EndPointCore>& endpoint,
                                          const std::shared_ptr<CompletionQueue>& queue);
  [[nodiscard]] Result<CompletionThread*> start_thread_locked(std::shared_ptr<CompletionQueue> queue,
                                                              const ThreadOptions& options, std::size_t index);
  [[nodiscard]] Status serve_shared(const std::shared_ptr<EndPointCore>& endpoint,
                                    const CompletionThread::Session& session);
  [[nodiscard]] bool is_guest(const EndPointCore& endpoint) const noexcept;

  const GuardedHooks& hooks_;
  CompletionThread::Owner& owner_;
  QueueService* const host_;
  const std::shared_ptr<Link> link_;
  InsideThreads threads_here_;  // they may be in a hook of any session whose endpoints they serve

  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  bool closed_ = false;
  std::shared_ptr<DeviceCore> device_;
  std::list<std::unique_ptr<CompletionThread>> threads_;
  std::map<std::string, SharedQueues> shared_queues_;
  std::map<std::string, std::shared_ptr<ReceivePoolCore>> receive_pools_;
  int served_by_host_ = 0;            // endpoints of this session
  std::size_t endpoint_threads_ = 0;  // of one endpoint or channel each, ever started
};

}  // namespace rdmacomm
