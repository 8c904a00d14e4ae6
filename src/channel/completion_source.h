// completion_source.h - takes completions one by one, for a thread that waits for one request of many.
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

/// The place from which PostedRequest::wait() takes completions until it finds that of its request. The others are
/// kept, in order, for the next poll or wait.
/// Threads: one at a time, the thread that may poll.
class CompletionSource {
 public:
  CompletionSource() = default;
  CompletionSource(const CompletionSource&) = delete;
  CompletionSource& operator=(const CompletionSource&) = delete;
  virtual ~CompletionSource() = default;

  /// Waits for the next completion that is not kept yet, and keeps it.
  /// Returns  as EndPoint::next(); std::errc::not_enough_memory: it has not waited
  [[nodiscard]] Status keep_next(Deadline deadline);
  /// Takes the completion of one request from the kept ones. Empty: it is not among them.
  [[nodiscard]] std::optional<Completion> take_kept(const ChannelCore& channel, bool is_recv, std::uint32_t position);
  /// Takes the oldest kept completions, at most out.size().
  [[nodiscard]] std::span<Completion> take_kept(std::span<Completion> out) noexcept;
  [[nodiscard]] bool keeps_any() const noexcept { return !kept_.empty(); }

  /// ok, or the reason why no further completion will arrive.
  [[nodiscard]] virtual Status over() const { return {}; }

 protected:
  /// Waits for one completion, as EndPoint::next().
  [[nodiscard]] virtual Result<Completion> take_next(Deadline deadline) = 0;
  /// Called when the first completion is kept (true), and when none is kept any more (false).
  virtual void note_kept(bool any) noexcept = 0;

 private:
  struct Kept {
    Completion completion;
    bool is_recv = false;
    std::uint32_t position = 0;  // of its request, in the queue of the channel
  };
  void forget(std::size_t first, std::size_t count) noexcept;

  std::vector<Kept> kept_;
};

}  // namespace rdmacomm
