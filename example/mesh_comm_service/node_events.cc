#include "mesh_comm_service/node_events.h"

namespace rdmacomm::mesh {

Result<std::unique_ptr<NodeEvents>> NodeEvents::create() {
  auto event = WakeEvent::create();
  if (!event) return event.error();
  return std::unique_ptr<NodeEvents>(new NodeEvents(std::move(*event)));
}

void NodeEvents::put(NodeEvent event) {
  const std::lock_guard lock(mutex_);
  queue_.push_back(std::move(event));
  event_.signal();
}

std::size_t NodeEvents::size() const {
  const std::lock_guard lock(mutex_);
  return queue_.size();
}

std::deque<NodeEvent> NodeEvents::take() {
  const std::lock_guard lock(mutex_);
  event_.clear();
  std::deque<NodeEvent> taken;
  taken.swap(queue_);
  return taken;
}

}  // namespace rdmacomm::mesh
