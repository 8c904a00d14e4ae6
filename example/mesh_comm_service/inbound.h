// inbound.h - the target's end of the traffic from one node.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "mesh_comm_service/link.h"
#include "mesh_comm_service/mail.h"

namespace rdmacomm::mesh {

/// Has memory that is written to or read from, and counts and verifies what arrives, as far as Terms::is_counted(). See
/// Link.
class Inbound final : public Link {
 public:
  explicit Inbound(const LinkParts& parts) : Link(parts) {}

  Status prepare(RDMADevice device, ProtectionDomain domain) override;
  void publish(HcaConfig& hca) const override;
  Status attach(const EndPoint& endpoint) override;

  /// The peer has finished, with so many messages. From now on kProgress tells when they are here.
  void expect(std::uint64_t messages);
  /// Whether all that was expected is here. Where this side does not count: at once.
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
  std::uint64_t receives_ = 0;  // complete
  std::uint64_t told_ = 0;      // up to here the peer has been told
  std::optional<std::uint64_t> expected_;
};

}  // namespace rdmacomm::mesh
