// queue_service.h - the queues and pools that endpoints share by key, and their threads. Private to the session layer.
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

/// The completion queues of HcaConfig::shared_queue_key, the receive pools of receive_pool_key, and a thread for each
/// completion queue that needs one. Endpoints of another session may use these queues (SessionOptions::queues_of); this
/// session is then their host.
/// Threads: any thread.
class QueueService {
 public:
  /// hooks  for endpoints of this session
  /// owner  is notified of ends
  /// host   the service whose shared completion queues this session uses; nullptr: its own. It must live longer
  QueueService(const GuardedHooks& hooks, CompletionThread::Owner& owner, QueueService* host);
  QueueService(const QueueService&) = delete;
  QueueService& operator=(const QueueService&) = delete;
  ~QueueService();

  /// Call it before all other functions except serves_here().
  void open(std::shared_ptr<DeviceCore> device);

  /// The queue of the key with the fewest endpoints; a new queue, if all have endpoints and the key may have more.
  /// Returns  kInvalidArgument: the queue was created with other values; kStopped; or as CompletionQueue::create and
  ///          start_thread
  [[nodiscard]] Result<std::shared_ptr<CompletionQueue>> shared_queue(const HcaConfig& config);
  /// The pool of the key; created for the first endpoint that asks for it.
  /// Returns  kInvalidArgument: the pool was created with other values; kStopped; or as ReceivePoolCore::create
  [[nodiscard]] Result<std::shared_ptr<ReceivePoolCore>> receive_pool(const HcaConfig& config);
  /// Serves the completion queues of an endpoint as its ThreadMode says, from now until it has ended.
  /// Returns  kStopped; as start_thread
  [[nodiscard]] Status serve(const std::shared_ptr<EndPointCore>& endpoint);
  /// Serves queues that an endpoint gets later. It may outlive this service, and then returns kStopped.
  [[nodiscard]] std::shared_ptr<QueueServer> queue_server() const noexcept;
  /// Must be the last call for a served endpoint of this session, because end() waits for it.
  void endpoint_ended(const EndPointCore& endpoint);

  /// Whether this thread serves endpoints of this session.
  [[nodiscard]] bool serves_here() const;
  /// Joins the threads that have ended.
  void reap();
  /// From now on all requests for queues and pools fail.
  void close();
  /// close(). Ends the threads and the endpoints on their queues, of all sessions. Also waits for endpoints of this
  /// session that a host serves.
  void end();

  // Receive pools that run low ------------------------------------------------------------------------------------

  /// The device has reported that `queue` is low. Returns  whether it belongs to a pool
  bool note_low(const ibv_srq* queue);
  /// The pools that have run low since the last call.
  [[nodiscard]] std::vector<std::shared_ptr<ReceivePoolCore>> take_low();

 private:
  /// The completion queues of one key. They are kept until the session stops.
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
  InsideThreads threads_here_;  // may be in a hook of any session whose endpoints they serve

  std::mutex mutex_;  // guards the members below
  std::condition_variable changed_;
  bool closed_ = false;
  std::shared_ptr<DeviceCore> device_;
  std::list<std::unique_ptr<CompletionThread>> threads_;
  std::map<std::string, SharedQueues> shared_queues_;
  std::map<std::string, std::shared_ptr<ReceivePoolCore>> receive_pools_;
  int served_by_host_ = 0;            // number of endpoints of this session
  std::size_t endpoint_threads_ = 0;  // threads for a single endpoint or channel that were ever started
};

}  // namespace rdmacomm
