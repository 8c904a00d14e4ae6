// wire.h - how the requests of one send queue reach their target.
//
// The queue pair (soft_qp.h) keeps queues, order, retries and completions; a wire carries one request out. The
// first wire is shared memory on one host (local_wire.h). A wire between hosts does the same behind exec(): the
// queue pair does not know the difference.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>

namespace rdmacomm::softdev {

enum class ExecOutcome : std::uint8_t {
  kDone,              ///< carried out, or refused for good: `status` says which
  kReceiverNotReady,  ///< no receive posted: again after the target's RNR timer
  kUnreachable,       ///< no target that accepts requests from here: again until the ACK timeouts are used up
  kLost,              ///< the target is gone for good
};

struct ExecResult {
  ExecOutcome outcome = ExecOutcome::kDone;
  ibv_wc_status status = IBV_WC_SUCCESS;
  std::uint32_t bytes = 0;  ///< of the message
};

class Wire {
 public:
  Wire() = default;
  Wire(const Wire&) = delete;
  Wire& operator=(const Wire&) = delete;
  virtual ~Wire() = default;

  /// Carries one request out, whole, or says why not; a request that is not kDone had no effect.
  /// Called under the send queue's lock. Posts that were checked only: opcode, counts, queue pair state.
  [[nodiscard]] virtual ExecResult exec(const ibv_send_wr& wr) noexcept = 0;
  /// Looks for the target, where it is not found yet. May wait for it to answer.
  virtual void attach() noexcept = 0;
  /// The line that the next SEND will write first; nullptr: not known, or none. Asking the target's core for it takes
  /// as long as all checks of a request together, so the queue pair does it before them.
  [[nodiscard]] const void* next_line() const noexcept { return next_line_; }
  /// The target's min_rnr_timer code.
  [[nodiscard]] virtual std::uint32_t rnr_timer_code() const noexcept = 0;

 protected:
  const void* next_line_ = nullptr;
};

}  // namespace rdmacomm::softdev
