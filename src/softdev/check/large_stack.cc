#include "softdev/check/large_stack.h"

#include <pthread.h>

#include <cerrno>
#include <cstddef>
#include <new>

#include "softdev/check/inside.h"

namespace rdmacomm::softdev::check {

void on_large_stack(const std::function<void()>& work) {
  constexpr std::size_t kBytes = std::size_t{1} << 20;
  const int error = errno;
  const Inside inside;  // the thread inherits that signals wait
  pthread_attr_t attributes;
  pthread_t thread{};
  bool runs = false;
  if (pthread_attr_init(&attributes) == 0) {
    const auto run = [](void* argument) -> void* {
      // Until the thread ends: libraries free memory of a thread when it ends, and free() would wait for the caller.
      alignas(Inside) std::byte memory[sizeof(Inside)];
      new (memory) Inside;
      (*static_cast<const std::function<void()>*>(argument))();
      return nullptr;
    };
    runs = pthread_attr_setstacksize(&attributes, kBytes) == 0 &&
           pthread_create(&thread, &attributes, run, const_cast<std::function<void()>*>(&work)) == 0;
    pthread_attr_destroy(&attributes);
  }
  if (runs) {
    pthread_join(thread, nullptr);
  } else {
    work();
  }
  errno = error;
}

}  // namespace rdmacomm::softdev::check
