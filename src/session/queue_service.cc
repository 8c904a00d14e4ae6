#include "session/queue_service.h"

#include <algorithm>
#include <utility>

#include "base/out_of_memory.h"
#include "session/stopped_error.h"

namespace rdmacomm {
namespace {

constexpr int kUsualSharedQueueDepth = 4096;

}  // namespace

/// The part of the service that endpoints keep. They may outlive the service. Threads: any.
class QueueService::Link final : public QueueServer {
 public:
  explicit Link(QueueService& queues) noexcept : queues_(&queues) {}

  [[nodiscard]] Status serve(const std::shared_ptr<EndPointCore>& endpoint,
                             const std::shared_ptr<CompletionQueue>& queue) override {
    const std::lock_guard lock(mutex_);
    return queues_ != nullptr ? queues_->serve_queue(endpoint, queue) : stopped_error();
  }
  void shut() {
    const std::lock_guard lock(mutex_);
    queues_ = nullptr;
  }

 private:
  std::mutex mutex_;
  QueueService* queues_;
};

QueueService::QueueService(const GuardedHooks& hooks, CompletionThread::Owner& owner, QueueService* host)
    : hooks_(hooks), owner_(owner), host_(host), link_(std::make_shared<Link>(*this)) {}

QueueService::~QueueService() {
  link_->shut();
}

std::shared_ptr<QueueServer> QueueService::queue_server() const noexcept {
  return link_;
}

void QueueService::open(std::shared_ptr<DeviceCore> device) {
  const std::lock_guard lock(mutex_);
  device_ = std::move(device);
}

// Queues and pools by key ---------------------------------------------------------------------------------------------

Result<std::shared_ptr<CompletionQueue>> QueueService::shared_queue(const HcaConfig& config) {
  if (host_ != nullptr) return host_->shared_queue(config);
  const std::lock_guard lock(mutex_);
  if (closed_) return stopped_error();
  SharedQueues& shared = shared_queues_[config.shared_queue_key];
  if (shared.threads.empty()) return new_queue_locked(shared, config);
  if (shared.polling_mode != config.polling_mode || shared.most != config.shared_queues) {
    return make_error(
        Errc::kInvalidArgument,
        "the completion queue '" + config.shared_queue_key +
            "' is already in use with another value of polling_mode or shared_queues; choose another key");
  }
  // The users of a queue are its endpoints, also during their setup, and its thread.
  const auto users = [](const CompletionThread* thread) { return thread->queue().use_count(); };
  const auto least = std::ranges::min_element(shared.threads, {}, users);
  const bool has_all = shared.threads.size() == static_cast<std::size_t>(shared.most);
  if (has_all || users(*least) == 1) return (*least)->queue();
  return new_queue_locked(shared, config);
}

Result<std::shared_ptr<CompletionQueue>> QueueService::new_queue_locked(SharedQueues& shared, const HcaConfig& config) {
  const int usual = std::min(kUsualSharedQueueDepth, device_->limits().max_cqe);
  auto queue = CompletionQueue::create(device_, {.polling_mode = config.polling_mode,
                                                 .waiting = config.waiting,
                                                 .depth = config.shared_queue_depth.value_or(usual),
                                                 .may_grow = !config.shared_queue_depth});
  if (!queue) return queue.error();
  auto thread = start_thread_locked(std::move(*queue), config.threads, shared.threads.size());
  if (!thread) return thread.error();
  shared.polling_mode = config.polling_mode;
  shared.most = config.shared_queues;
  shared.threads.push_back(*thread);
  return (*thread)->queue();
}

/// Holds the lock while a pool is created, which takes long because its memory is registered: other endpoints of the
/// key wait for it.
Result<std::shared_ptr<ReceivePoolCore>> QueueService::receive_pool(const HcaConfig& config) {
  const std::lock_guard lock(mutex_);
  if (closed_) return stopped_error();
  const auto found = receive_pools_.find(config.receive_pool_key);
  if (found != receive_pools_.end()) {
    if (found->second->options() == config.receive_pool) return found->second;
    return make_error(Errc::kInvalidArgument, "the receive pool '" + config.receive_pool_key +
                                                  "' is already in use with other options; choose another key");
  }
  auto pool = ReceivePoolCore::create(device_, config.receive_pool);
  if (!pool) return pool.error();
  receive_pools_[config.receive_pool_key] = *pool;
  return pool;
}

// Threads -------------------------------------------------------------------------------------------------------------

Result<CompletionThread*> QueueService::start_thread_locked(std::shared_ptr<CompletionQueue> queue,
                                                            const ThreadOptions& options, std::size_t index) {
  auto thread = std::make_unique<CompletionThread>(std::move(queue), owner_, threads_here_);
  if (Status started = thread->start(options, index); !started) return started.error();
  threads_.push_back(std::move(thread));
  return threads_.back().get();
}

Status QueueService::serve(const std::shared_ptr<EndPointCore>& endpoint) {
  const HcaConfig& config = endpoint->config();
  if (config.thread_mode == ThreadMode::kApplication) return {};
  if (config.thread_mode == ThreadMode::kThreadPerCompletionQueue) {
    const CompletionThread::Session session{.hooks = hooks_, .owner = owner_};
    if (!is_guest(*endpoint)) return serve_shared(endpoint, session);
    {
      const std::lock_guard lock(mutex_);
      ++served_by_host_;
    }
    Status served = or_out_of_memory([&] { return host_->serve_shared(endpoint, session); });
    if (!served) endpoint_ended(*endpoint);
    return served;
  }
  const std::lock_guard lock(mutex_);
  for (const auto& queue : endpoint->served_queues()) {
    if (Status served = serve_queue_locked(endpoint, queue); !served) return served;
  }
  return {};
}

/// Passes an endpoint of `session` to the thread of its completion queue.
Status QueueService::serve_shared(const std::shared_ptr<EndPointCore>& endpoint,
                                  const CompletionThread::Session& session) {
  const std::lock_guard lock(mutex_);
  if (closed_) return stopped_error();
  const std::vector<CompletionThread*>& threads = shared_queues_[endpoint->config().shared_queue_key].threads;
  const auto serving = std::ranges::find(threads, endpoint->queue(), &CompletionThread::queue);
  if (serving == threads.end()) return stopped_error();
  (*serving)->add(endpoint, session);
  return {};
}

Status QueueService::serve_queue(const std::shared_ptr<EndPointCore>& endpoint,
                                 const std::shared_ptr<CompletionQueue>& queue) {
  const std::lock_guard lock(mutex_);
  return serve_queue_locked(endpoint, queue);
}

Status QueueService::serve_queue_locked(const std::shared_ptr<EndPointCore>& endpoint,
                                        const std::shared_ptr<CompletionQueue>& queue) {
  if (closed_) return stopped_error();
  const auto thread = start_thread_locked(queue, endpoint->config().threads, endpoint_threads_++);
  if (!thread) return thread.error();
  (*thread)->add(endpoint, {.hooks = hooks_, .owner = owner_});
  (*thread)->finish();
  return {};
}

bool QueueService::is_guest(const EndPointCore& endpoint) const noexcept {
  return host_ != nullptr && endpoint.config().thread_mode == ThreadMode::kThreadPerCompletionQueue;
}

void QueueService::endpoint_ended(const EndPointCore& endpoint) {
  if (!is_guest(endpoint)) return;
  const std::lock_guard lock(mutex_);
  --served_by_host_;
  changed_.notify_all();
}

bool QueueService::serves_here() const {
  return threads_here_.contains_this_one() || (host_ != nullptr && host_->serves_here());
}

void QueueService::reap() {
  std::list<std::unique_ptr<CompletionThread>> ended;
  const std::lock_guard lock(mutex_);
  for (auto each = threads_.begin(); each != threads_.end();) {
    const auto next = std::next(each);
    if ((*each)->ended()) ended.splice(ended.end(), threads_, each);
    each = next;
  }
}

void QueueService::close() {
  const std::lock_guard lock(mutex_);
  closed_ = true;
}

void QueueService::end() {
  std::list<std::unique_ptr<CompletionThread>> threads;
  {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    threads.swap(threads_);
    shared_queues_.clear();
  }
  for (const auto& thread : threads) thread->end();
  threads.clear();  // the destructors wait for the last hook
  std::map<std::string, std::shared_ptr<ReceivePoolCore>> pools;
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [this] { return served_by_host_ == 0; });
  pools.swap(receive_pools_);
}

// Receive pools that run low ------------------------------------------------------------------------------------------

bool QueueService::note_low(const ibv_srq* queue) {
  const std::lock_guard lock(mutex_);
  for (const auto& [key, pool] : receive_pools_) {
    if (pool->queue().get() != queue) continue;
    pool->note_low();
    return true;
  }
  return false;
}

std::vector<std::shared_ptr<ReceivePoolCore>> QueueService::take_low() {
  std::vector<std::shared_ptr<ReceivePoolCore>> low;
  const std::lock_guard lock(mutex_);
  for (const auto& [key, pool] : receive_pools_) {
    if (pool->take_low_notice()) low.push_back(pool);
  }
  return low;
}

}  // namespace rdmacomm
