// datagram_wire.h - datagrams to whoever each of them names.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <memory>

#include "softdev/local_wire.h"
#include "softdev/wire.h"

namespace rdmacomm::softdev {

/// Carries each request of a datagram queue pair to the target that its address handle and number say, or to all members
/// of a group. Targets are looked for when the first datagram goes to them, and kept for the next.
class DatagramWire final : public Wire {
 public:
  explicit DatagramWire(const LocalEnd& own) : own_(own), nobody_(own, 0) {}

  [[nodiscard]] ExecResult exec(const ibv_send_wr& wr) noexcept override;
  void attach() noexcept override {}
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept override { return 0; }

 private:
  ExecResult send_to(std::uint32_t qpn, const ibv_send_wr& wr) noexcept;
  ExecResult send_to_group(const ibv_send_wr& wr) noexcept;

  /// More targets than that are not kept.
  static constexpr std::size_t kMostTargets = 4096;
  const LocalEnd own_;
  LocalWire nobody_;  ///< shows what is wrong with a request itself
  std::map<std::uint32_t, std::unique_ptr<LocalWire>> targets_;
};

}  // namespace rdmacomm::softdev
