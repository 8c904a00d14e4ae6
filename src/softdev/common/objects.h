// objects.h - objects that the application owns, by kind.
#pragma once

#include <mutex>
#include <vector>

namespace rdmacomm::softdev {

/// The objects of one kind of a context, which the application owns.
/// Threads: any.
template <typename Object>
class Objects {
 public:
  void insert(Object& object) {
    const std::scoped_lock lock(mutex_);
    objects_.push_back(&object);
  }
  void remove(Object& object) {
    const std::scoped_lock lock(mutex_);
    std::erase(objects_, &object);
  }
  /// Calls `use` for each; none of them goes meanwhile.
  template <typename Use>
  void for_each(Use&& use) {
    const std::scoped_lock lock(mutex_);
    for (Object* object : objects_) use(*object);
  }

 private:
  std::mutex mutex_;
  std::vector<Object*> objects_;
};

}  // namespace rdmacomm::softdev
