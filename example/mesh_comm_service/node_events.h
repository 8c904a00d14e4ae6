// node_events.h - what the threads of the sessions tell the node's own thread.
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

/// One of them. A value.
struct NodeEvent {
  enum class Kind : std::uint8_t {
    kArrived,     ///< node `rank` has connected to this one: `endpoint`, `link`
    kConnected,   ///< this one has connected to node `rank`: the same
    kNotReached,  ///< it could not: `status`
    kMisfit,      ///< a node of another mesh, or with other terms, was refused: `status`
    kEnded,       ///< an endpoint of node `rank` has ended: `ended`, `status`
    kProgress,    ///< the link `of` has done what it was to do
    kTrouble,     ///< a request of the link `of` failed
  };
  Kind kind = Kind::kProgress;
  int rank = 0;
  std::shared_ptr<Link> link = nullptr;  ///< of kArrived and kConnected
  const Link* of = nullptr;              ///< of kProgress and kTrouble; to be compared only
  EndPoint endpoint = {};
  EndPoint ended = {};
  Status status = {};
};

/// A queue of them with a descriptor to sleep on. A resource. Threads: any.
class NodeEvents {
 public:
  [[nodiscard]] static Result<std::unique_ptr<NodeEvents>> create();

  void put(NodeEvent event);
  /// All that there are, in their order; fd() is readable again with the next one.
  [[nodiscard]] std::deque<NodeEvent> take();
  /// How many have not been taken.
  [[nodiscard]] std::size_t size() const;
  [[nodiscard]] int fd() const noexcept { return event_.fd(); }

 private:
  explicit NodeEvents(WakeEvent event) : event_(std::move(event)) {}

  const WakeEvent event_;
  mutable std::mutex mutex_;
  std::deque<NodeEvent> queue_;
};

}  // namespace rdmacomm::mesh
