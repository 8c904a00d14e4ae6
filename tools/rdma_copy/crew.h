// crew.h - jobs that are done on several threads, those of one name one after the other.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace rdmacomm::copying {

/// A resource; its threads start when there is something to do.
/// Threads: one calls. Cost: whoever adds waits while the member that the job is for has 64 of them.
class Crew {
 public:
  /// members  1 or more
  explicit Crew(std::size_t members);
  Crew(const Crew&) = delete;
  Crew& operator=(const Crew&) = delete;
  /// Waits for jobs that are being done; what nobody has begun is left out.
  ~Crew();

  /// Jobs of the same name are done in order.
  void add(const std::string& name, std::function<void()> job);
  /// Waits until all are done.
  void drain();

 private:
  class Member;

  const std::size_t size_;
  std::vector<std::unique_ptr<Member>> members_;
};

}  // namespace rdmacomm::copying
