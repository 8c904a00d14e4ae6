// xrc_wire.h - requests of an XRC queue pair to its target queue pair, each for the shared receive queue that it names.
#pragma once

#include <cstdint>
#include <string>

#include "softdev/local/local_wire.h"
#include "softdev/local/named_targets.h"
#include "softdev/local/wire.h"

namespace rdmacomm::softdev {

/// The target's queue pair (IBV_QPT_XRC_RECV) decides which requests are allowed. Receives, memory and protection
/// domain are those of the shared receive queue.
class XrcWire final : public Wire {
 public:
  XrcWire(const LocalEnd& own, std::uint32_t target_qpn)
      : target_(own, target_qpn), queues_(own.at_xrc_queue(target_qpn)) {}

  /// As LocalWire::connect().
  [[nodiscard]] int connect() { return target_.connect(); }
  void begin(const LinkTerms& terms, std::uint32_t life) noexcept override { target_.begin(terms, life); }
  [[nodiscard]] std::uint32_t target_read_depth() const noexcept override { return target_.target_read_depth(); }
  void expect_reads(std::uint32_t count) noexcept override { target_.expect_reads(count); }
  [[nodiscard]] std::string why_unreachable() const override { return target_.why_unreachable(); }
  [[nodiscard]] bool lacks_target() const noexcept override { return target_.lacks_target(); }
  [[nodiscard]] std::unique_ptr<TargetSearch> search() const override { return target_.search(); }
  void take_found(TargetSearch& search) noexcept override { target_.take_found(search); }
  [[nodiscard]] ExecResult exec(const ibv_send_wr& wr) noexcept override {
    return target_.exec_xrc(wr, queues_.get(wr.qp_type.xrc.remote_srqn));
  }
  [[nodiscard]] pid_t target_process() const noexcept override { return target_.target_process(); }
  void report_refused(ibv_wc_status status) noexcept override { target_.report_refused(status); }
  [[nodiscard]] std::uint32_t rnr_timer_code() const noexcept override { return target_.rnr_timer_code(); }
  [[nodiscard]] std::uint32_t target_device() const noexcept override { return target_.target_device(); }

 private:
  LocalWire target_;
  NamedTargets queues_;
};

}  // namespace rdmacomm::softdev
