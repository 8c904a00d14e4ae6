// completion.h - the outcome of one posted request.
// Layer: channel. Uses: base.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm {

class RDMAChannel;

/// The kind of the request that a completion belongs to.
enum class Operation : std::uint8_t {
  kSend,          ///< post_send
  kWrite,         ///< post_write
  kWriteImm,      ///< post_write with an immediate, at the process that writes
  kRead,          ///< post_read
  kFetchAdd,      ///< post_fetch_add
  kCompareSwap,   ///< post_compare_swap
  kRecv,          ///< a posted receive that a SEND filled
  kRecvWriteImm,  ///< a posted receive that a peer's WRITE_WITH_IMM consumed; its buffers are untouched
};
/// The name of the operation: "SEND", "WRITE_WITH_IMM", ... A static text.
[[nodiscard]] RDMACOMM_API const char* to_text(Operation operation) noexcept;

/// The outcome of one request. A value.
struct RDMACOMM_API Completion {
  std::uint64_t id = 0;                    ///< the id that the request was posted with
  RDMAChannel* channel = nullptr;          ///< the channel that the request was posted on
  Operation operation = Operation::kSend;  ///< the kind of the request; valid on errors too
  bool has_immediate = false;              ///< whether the peer sent an `immediate`; only successful receives have one
  Errc error = Errc::kOk;                  ///< kOk, or one of the completion codes of errc.h
  std::uint32_t immediate = 0;             ///< the peer's 32 bits in host byte order, if has_immediate
  std::uint32_t vendor_error = 0;          ///< the device's own code; on errors
  /// Payload that was sent, written, read, received or (kRecvWriteImm) written by the peer; 0 on errors.
  std::uint32_t bytes = 0;

  /// Whether the request was executed.
  [[nodiscard]] bool ok() const noexcept { return error == Errc::kOk; }
  /// ok, or an Error that names the operation, the id, the channel, the peer's queue pair, the cause and the next step.
  /// On iWARP kLocalQueuePair may mean that the connection has ended: EndPoint::status() then has the reason. Only
  /// while `channel` lives.
  /// Cost on errors: strings. Hooks may call it, because it does not ask the device.
  [[nodiscard]] Status status() const;
  /// Like status(), but it also checks the port: a port that is down by now counts as the cause. For the last message
  /// of a program. Not for hooks, because a completion thread serves other endpoints too.
  /// Cost on errors: may ask the device; for kLocalQueuePair it may wait up to 200 ms until the port reports that it is
  /// down.
  [[nodiscard]] Status explain() const;
};

/// The completions that a poll has taken. They are in the array that the caller passed. A view, 16 bytes.
///
///     for (const Completion& each : channel.poll(batch)) ...
class [[nodiscard]] RDMACOMM_API Polled {
 public:
  constexpr Polled() noexcept = default;  ///< no completions, and no failure
  /// For the library: `count` completions, fewer than 2^32, from `first` on. `error` is that of the poll.
  constexpr Polled(Completion* first, std::size_t count, Errc error = Errc::kOk) noexcept
      : first_(first),
        rest_(static_cast<std::uint32_t>(count) | std::uint64_t{static_cast<std::uint32_t>(error)} << 32) {}

  /// A view of the same completions as `same`, at the address `first`.
  constexpr Polled(Completion* first, Polled same) noexcept : first_(first), rest_(same.rest_) {}

  /// False: the poll has failed, see outcome(). After kCompletionFailed the completion queue returns no further
  /// completions. The view may still have some.
  [[nodiscard]] constexpr bool ok() const noexcept { return rest_ >> 32 == 0; }
  constexpr explicit operator bool() const noexcept { return ok(); }  ///< ok()
  /// ok, or the error of the poll: kCompletionFailed or kWrongState.
  [[nodiscard]] constexpr Outcome outcome() const noexcept { return static_cast<Errc>(rest_ >> 32); }

  /// The number of completions, also after a failure.
  [[nodiscard]] constexpr std::size_t size() const noexcept { return static_cast<std::uint32_t>(rest_); }
  [[nodiscard]] constexpr bool empty() const noexcept { return size() == 0; }           ///< whether size() is 0
  [[nodiscard]] constexpr Completion* begin() const noexcept { return first_; }         ///< the first completion
  [[nodiscard]] constexpr Completion* end() const noexcept { return first_ + size(); }  ///< behind the last one
  /// One of the completions. Not checked.
  ///
  /// index  0..size() - 1
  [[nodiscard]] constexpr Completion& operator[](std::size_t index) const noexcept { return first_[index]; }

 private:
  Completion* first_ = nullptr;
  std::uint64_t rest_ = 0;  // the count and, above it, the error: one register
};

}  // namespace rdmacomm
