#include "mesh_comm_service/happenings.h"

namespace rdmacomm::mesh {

Result<std::unique_ptr<Happenings>> Happenings::create() {
  auto event = WakeEvent::create();
  if (!event) return event.error();
  return std::unique_ptr<Happenings>(new Happenings(std::move(*event)));
}

void Happenings::put(Happening happening) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(happening));
  event_.signal();
}

std::size_t Happenings::size() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

std::deque<Happening> Happenings::take() {
  const std::lock_guard lock(mutex_);
  event_.clear();
  std::deque<Happening> taken;
  taken.swap(queue_);
  return taken;
}

}  // namespace rdmacomm::mesh
