// link.h - one end of the traffic from one node to another; and the sessions whose hooks drive it.
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

/// Between which nodes, and how. A value.
struct LinkParts {
  int self = 0;
  int peer = 0;
  Terms terms = {};
  NodeEvents* events = nullptr;  ///< is told what becomes of it
};

/// One end of the traffic in one direction. Two messages go beside it, each kNoteBytes long: after each batch() the
/// receiving side tells how far it is, so that the sending side may go on; and a sender of plain WRITEs that are to be
/// verified tells how far it is, which the other side cannot see.
/// Threads: on_completion from the hooks of its endpoint; the rest from any.
/// Lifetime: until the last hook of its endpoint, and while the node wants its figures; at the end of a run until its
/// session has been stopped.
class Link : public std::enable_shared_from_this<Link> {
 public:
  static constexpr std::uint32_t kNoteBytes = 16;

  Link(const Link&) = delete;
  Link& operator=(const Link&) = delete;
  virtual ~Link() = default;

  [[nodiscard]] int peer() const noexcept { return parts_.peer; }
  [[nodiscard]] const Terms& terms() const noexcept { return parts_.terms; }

  /// Before there is an endpoint: makes the memory on the device, which the link keeps.
  /// domain   HcaConfig::domain of the endpoint; empty: the device's own
  /// Returns  as RDMABuffer::allocate
  [[nodiscard]] virtual Status prepare(RDMADevice device, ProtectionDomain domain) = 0;
  /// Has the memory that the other end must reach published.
  virtual void publish(HcaConfig& hca) const = 0;
  /// In post_connecting(): posts the receives. Returns  as RDMAChannel::post_recv
  [[nodiscard]] virtual Status attach(const EndPoint& endpoint) = 0;
  void on_completion(const Completion& completion);
  /// With the endpoint's last hook: nothing is posted any more.
  void detach();
  /// detach(), and frees the memory. A device may have to look at all its queue pairs for that: where all of them are
  /// going, it is cheaper to do it when they are gone.
  void release();

  /// Why a request failed; ok where none has.
  [[nodiscard]] Status trouble() const;

 protected:
  explicit Link(const LinkParts& parts) : parts_(parts) {}

  /// With mutex_ held, while there is an endpoint.
  virtual void complete(const Completion& completion) = 0;

  /// What requests are posted with, so that their completions find the way back.
  [[nodiscard]] std::uint64_t id() const noexcept { return reinterpret_cast<std::uintptr_t>(this); }
  void fail_locked(const Status& why);
  void fail_locked(Outcome posting);
  [[nodiscard]] Status make_payload(std::size_t blocks, RemoteAccess access);
  /// Places for the notes that come, then for those that go: of these as many as the queue holds.
  [[nodiscard]] Status make_notes();
  /// Where receive number `number` of notes puts what comes.
  [[nodiscard]] BufferSlice incoming_note(std::uint64_t number) const;
  /// Sends the peer a note. Whether it has left: not where the queue has no room, or the queue pair has ended.
  [[nodiscard]] bool send_note(std::uint64_t messages, std::uint64_t bytes);

  const LinkParts parts_;
  mutable std::mutex mutex_;  // guards what follows, and all members of derived classes
  RDMADevice device_;         // before the buffers, which go first
  ProtectionDomain domain_;
  RDMAChannel* channel_ = nullptr;  // while there is an endpoint
  RDMABuffer payload_;

 private:
  RDMABuffer notes_;
  std::uint64_t notes_sent_ = 0;
  Status trouble_;
};

/// The link that a request belongs to.
[[nodiscard]] inline Link& link_of(const Completion& completion) noexcept {
  return *reinterpret_cast<Link*>(static_cast<std::uintptr_t>(completion.id));
}

/// Hooks that pass completions on to the links that have posted the requests.
class LinkHooks : public SessionHooks {
 public:
  void on_completion(const EndPoint& /*endpoint*/, const Completion& completion) override {
    link_of(completion).on_completion(completion);
  }
};

/// What each message is filled with: no two are alike.
[[nodiscard]] std::uint64_t message_seed(int from, int to, std::uint64_t message) noexcept;
/// How far a side is, as a note of kNoteBytes: messages, then bytes, little-endian.
void write_note(std::span<std::byte> to, std::uint64_t messages, std::uint64_t bytes) noexcept;
struct Note {
  std::uint64_t messages;
  std::uint64_t bytes;
};
[[nodiscard]] Note read_note(std::span<const std::byte> from) noexcept;
/// What goes with message number `message`, where there is immediate data.
[[nodiscard]] inline std::uint32_t immediate_of(std::uint64_t message) noexcept {
  return static_cast<std::uint32_t>(message);
}
/// How long message number `message` is.
[[nodiscard]] std::uint32_t length_of(const Terms& terms, std::uint64_t message) noexcept;

}  // namespace rdmacomm::mesh
