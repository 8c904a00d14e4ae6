// completion_source.h - completions one by one, for who waits for one request of many.
// Layer: channel.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "rdmacomm/completion.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

class ChannelCore;

/// Where PostedRequest::wait() takes completions from until its own is among them. The others are kept, in the order
/// in which they came, for whoever polls or waits next.
/// Threads: one at a time, which is the one that may poll.
class CompletionSource {
 public:
  CompletionSource() = default;
  CompletionSource(const CompletionSource&) = delete;
  CompletionSource& operator=(const CompletionSource&) = delete;
  virtual ~CompletionSource() = default;

  /// Waits for the next completion that is not kept, and keeps it.
  /// Returns  as EndPoint::next(); std::errc::not_enough_memory: it has not waited
  [[nodiscard]] Status keep_next(Deadline deadline);
  /// Takes the completion of one request out of those that are kept. Empty: it is not there.
  [[nodiscard]] std::optional<Completion> take_kept(const ChannelCore& channel, bool is_recv, std::uint32_t position);
  /// Takes the oldest ones of those that are kept, as many as `out` has room for.
  [[nodiscard]] std::span<Completion> take_kept(std::span<Completion> out) noexcept;
  [[nodiscard]] bool keeps_any() const noexcept { return !kept_.empty(); }

  /// ok, or why no further completion will come.
  [[nodiscard]] virtual Status over() const { return {}; }

 protected:
  /// Waits for one, as EndPoint::next().
  [[nodiscard]] virtual Result<Completion> take_next(Deadline deadline) = 0;
  /// From now on some are kept, or none are.
  virtual void note_kept(bool any) noexcept = 0;

 private:
  struct Kept {
    Completion completion;
    bool is_recv = false;
    std::uint32_t position = 0;  // of its request, in the channel's queue
  };
  void forget(std::size_t first, std::size_t count) noexcept;

  std::vector<Kept> kept_;
};

}  // namespace rdmacomm
