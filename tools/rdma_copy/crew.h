// crew.h - runs jobs on several threads, those with the same name in order.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rdmacomm::copying {

/// A resource. Its threads start with the first job.
/// Threads: one at a time. Cost: add() waits while the thread of that name has 64 jobs.
class Crew {
 public:
  /// members  1 or more
  explicit Crew(std::size_t members);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  /// Waits for the running jobs. Jobs that have not begun are dropped.
  ~Crew();

  /// Jobs with the same name run in order.
  void add(const std::string& name, std::function<void()> job);
  /// Waits until all jobs are done.
  void drain();

 private:
  class Member;

  const std::size_t size_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace rdmacomm::copying
