#include "rdma_copy/crew.h"

#include <condition_variable>
#include <deque>
#include <utility>

namespace rdmacomm::copying {
namespace {

constexpr std::size_t kMaxJobs = 64;

}  // namespace

class Crew::Member {
 public:
  Member() {
    thread_ = std::thread([this] { run(); });
  }
  Member(const Member&) = delete;
  Member& operator=(const Member&) = delete;
  ~Member() {
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  void add(std::function<void()> job) {
    std::unique_lock lock(mutex_);
    // Waits until half of them are done. Otherwise two threads would wake each other for each job.
    if (jobs_.size() >= kMaxJobs) changed_.wait(lock, [this] { return jobs_.size() <= kMaxJobs / 2; });
    jobs_.push_back(std::move(job));
    if (jobs_.size() > 1) return;
    lock.unlock();
    changed_.notify_all();
  }

  void drain() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this] { return jobs_.empty(); });
  }

 private:
  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      changed_.wait(lock, [this] { return ended_ || !jobs_.empty(); });
      if (ended_) return;
      std::function<void()> job = std::move(jobs_.front());  // it stays in the queue until it is done
      lock.unlock();
      job();
      job = nullptr;  // destroys the objects that it holds
      lock.lock();
      jobs_.pop_front();
      if (jobs_.empty() || jobs_.size() == kMaxJobs / 2) changed_.notify_all();
    }
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<std::function<void()>> jobs_;  // the first one is running
  bool ended_ = false;
  std::thread thread_;
};

Crew::Crew(std::size_t members) : size_(members) {}
Crew::~Crew() = default;

void Crew::add(const std::string& name, std::function<void()> job) {
  while (members_.size() < size_) members_.push_back(std::make_unique<Member>());
  members_[std::hash<std::string>()(name) % size_]->add(std::move(job));
}

void Crew::drain() {
  for (const auto& member : members_) member->drain();
}

}  // namespace rdmacomm::copying
