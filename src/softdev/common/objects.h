// objects.h - a context's list of objects that the application owns.
#pragma once

#include <mutex>
#include <vector>

namespace rdmacomm::softdev {

/// All objects of one kind in a context. The application owns them.
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
  /// Calls `use` for each object. No object is removed in the meantime.
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
