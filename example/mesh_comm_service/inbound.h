// inbound.h - the target of the traffic from one node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mesh_comm_service/link.h"
#include "mesh_comm_service/mail.h"

namespace rdmacomm::mesh {

/// Owns the memory that the peer writes to or reads from. If Terms::is_counted(), counts and verifies the messages that
/// arrive. See Link.
class Inbound final : public Link {
 public:
  explicit Inbound(const LinkParts& parts) : Link(parts) {}

  Status prepare(RDMADevice device, ProtectionDomain domain) override;
  void publish(HcaConfig& hca) const override;
  Status attach(const EndPoint& endpoint) override;

  /// The peer has sent all its messages, `messages` in total. From now on kProgress reports when all of them have
  /// arrived.
  void expect(std::uint64_t messages);
  /// Whether all expected messages have arrived. If this node does not count them: true at once.
  [[nodiscard]] bool has_all() const;
  [[nodiscard]] Tally tally() const;

 private:
  void complete(const Completion& completion) override;
  void take_message(std::uint32_t bytes, std::optional<std::uint32_t> immediate);
  void take_note();
  void check(std::uint64_t message, std::uint32_t bytes, std::optional<std::uint32_t> immediate);
  [[nodiscard]] std::string difference_of(std::uint64_t message, std::uint32_t bytes,
                                          std::optional<std::uint32_t> immediate) const;
  void post_receive_again();
  [[nodiscard]] bool has_all_locked() const noexcept;
  [[nodiscard]] Outcome post_receive(std::uint64_t number);

  // Guarded by mutex_:
  Tally tally_;
  std::uint64_t receives_ = 0;  // number of completed receives
  std::uint64_t told_ = 0;      // the peer was told of messages up to here
  std::optional<std::uint64_t> expected_;
};

}  // namespace rdmacomm::mesh
