// node_events.h - passes events from the threads of the sessions to the node's own thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>

#include "base/wake_event.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

class Link;

/// An event. A value.
struct NodeEvent {
  enum class Kind : std::uint8_t {
    kArrived,     ///< node `rank` has connected to this one: `endpoint`, `link`
    kConnected,   ///< this one has connected to node `rank`: the same
    kNotReached,  ///< this one could not connect to node `rank`: `status`
    kMisfit,      ///< a node of another mesh, or with other terms, was refused: `status`
    kEnded,       ///< an endpoint of node `rank` has ended: `ended`, `status`
    kProgress,    ///< the link `of` has finished
    kTrouble,     ///< a request of the link `of` failed
  };
  Kind kind = Kind::kProgress;
  int rank = 0;
  std::shared_ptr<Link> link = nullptr;  ///< for kArrived and kConnected
  const Link* of = nullptr;              ///< for kProgress and kTrouble; only for comparison
  EndPoint endpoint = {};
  EndPoint ended = {};
  Status status = {};
};

/// A queue of events with a descriptor to sleep on. A resource. Threads: any.
class NodeEvents {
 public:
  [[nodiscard]] static Result<std::unique_ptr<NodeEvents>> create();

  void put(NodeEvent event);
  /// Takes all events, in order; fd() becomes readable again with the next one.
  [[nodiscard]] std::deque<NodeEvent> take();
  /// The number of events that were not taken.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] int fd() const noexcept { return event_.fd(); }

 private:
  explicit NodeEvents(WakeEvent event) : event_(std::move(event)) {}

  const WakeEvent event_;
  mutable std::mutex mutex_;
  std::deque<NodeEvent> queue_;
};

}  // namespace rdmacomm::mesh
