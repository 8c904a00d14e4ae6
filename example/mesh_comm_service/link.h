// link.h - one half of the traffic from one node to another, and session hooks that drive it.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>

#include "mesh_comm_service/node_events.h"
#include "mesh_comm_service/terms.h"
#include "rdmacomm/buffer.h"
#include "rdmacomm/config.h"
#include "rdmacomm/endpoint.h"
#include "rdmacomm/result.h"
#include "rdmacomm/session.h"

namespace rdmacomm::mesh {

inline constexpr const char* kTrafficRegion = "traffic";

/// The two nodes of a link, and the traffic between them. A value.
struct LinkParts {
  int self = 0;
  int peer = 0;
  Terms terms = {};
  NodeEvents* events = nullptr;  ///< receives the events of the link
};

/// One half of the traffic in one direction. In addition to the traffic, notes of kNoteBytes are sent. After each
/// batch() the target sends the number of messages that have arrived, so that the initiator may continue. If plain
/// WRITEs are verified, the initiator sends the number of messages written, because the target cannot see them.
/// Threads: on_completion from the hooks of its endpoint; all others from any.
/// Lifetime: until the last hook of its endpoint, and as long as the node needs its figures; at the end of a run until
/// its session is stopped.
class Link : public std::enable_shared_from_this<Link> {
 public:
  static constexpr std::uint32_t kNoteBytes = 16;

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  [[nodiscard]] int peer() const noexcept { return parts_.peer; }
  [[nodiscard]] const Terms& terms() const noexcept { return parts_.terms; }

  /// Before the endpoint exists: allocates memory on the device, which the link keeps open.
  /// domain   HcaConfig::domain of the endpoint; empty: the device's own
  /// Returns  as RDMABuffer::allocate
  [[nodiscard]] virtual Status prepare(RDMADevice device, ProtectionDomain domain) = 0;
  /// Publishes the memory that the peer accesses.
  virtual void publish(HcaConfig& hca) const = 0;
  /// Called in post_connecting(): posts the receives. Returns  as RDMAChannel::post_recv
  [[nodiscard]] virtual Status attach(const EndPoint& endpoint) = 0;
  void on_completion(const Completion& completion);
  /// Call it in the endpoint's last hook. Nothing is posted after it.
  void detach();
  /// detach(), and frees the memory. A device may search all its queue pairs for that. If all of them will be
  /// destroyed, it is cheaper to free the memory after them.
  void release();

  /// Why a request failed; ok if none has failed.
  [[nodiscard]] Status trouble() const;

 protected:
  explicit Link(const LinkParts& parts) : parts_(parts) {}

  /// Called with mutex_ held, while an endpoint exists.
  virtual void complete(const Completion& completion) = 0;

  /// The id of posted requests, by which completions find this link.
  [[nodiscard]] std::uint64_t id() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
  void fail_locked(const Status& why);
  void fail_locked(Outcome posting);
  [[nodiscard]] Status make_payload(std::size_t blocks, RemoteAccess access);
  /// Allocates places for incoming notes, then for outgoing notes, one for each entry of the queue.
  [[nodiscard]] Status make_notes();
  /// The memory of receive number `number` of notes.
  [[nodiscard]] BufferSlice incoming_note(std::uint64_t number) const;
  /// Sends the peer a note. Returns false if the queue has no room, or if the queue pair has ended.
  [[nodiscard]] bool send_note(std::uint64_t messages, std::uint64_t bytes);

  const LinkParts parts_;
  mutable std::mutex mutex_;  // guards the members below, and all members of derived classes
  RDMADevice device_;         // before the buffers, which are destroyed first
  ProtectionDomain domain_;
  RDMAChannel* channel_ = nullptr;  // set while an endpoint exists
  RDMABuffer payload_;

 private:
  RDMABuffer notes_;
  std::uint64_t notes_sent_ = 0;
  Status trouble_;
};

/// The link that posted the request of a completion.
[[nodiscard]] inline Link& link_of(const Completion& completion) noexcept {
  return *reinterpret_cast<Link*>(static_cast<std::uintptr_t>(completion.id));
}

/// Hooks that pass completions to the links that posted the requests.
class LinkHooks : public SessionHooks {
 public:
  void on_completion(const EndPoint& /*endpoint*/, const Completion& completion) override {
    link_of(completion).on_completion(completion);
  }
};

/// The seed for the content of a message; different for each message.
[[nodiscard]] std::uint64_t message_seed(int from, int to, std::uint64_t message) noexcept;
/// Writes a note of kNoteBytes: number of messages, then bytes, little-endian.
void write_note(std::span<std::byte> to, std::uint64_t messages, std::uint64_t bytes) noexcept;
struct Note {
  std::uint64_t messages;
  std::uint64_t bytes;
};
[[nodiscard]] Note read_note(std::span<const std::byte> from) noexcept;
/// The immediate data of message number `message`, if the operation has any.
[[nodiscard]] inline std::uint32_t immediate_of(std::uint64_t message) noexcept {
  return static_cast<std::uint32_t>(message);
}
/// The length of message number `message`.
[[nodiscard]] std::uint32_t length_of(const Terms& terms, std::uint64_t message) noexcept;

}  // namespace rdmacomm::mesh
