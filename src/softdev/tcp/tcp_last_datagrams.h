// tcp_last_datagrams.h - datagrams that their queue pair has completed, and left unsent when it ended.
#pragma once

#include <chrono>
#include <list>

#include "softdev/tcp/tcp_datagrams.h"

namespace rdmacomm::softdev {

/// Sends the last datagrams of queue pairs that do not exist any more. A datagram completes when it is in the local
/// buffer, and the connection to its target may take longer. On hardware it would be on the wire by then. So programs
/// destroy a queue pair, and end, as soon as their datagrams are complete.
/// Threads: one at a time.
class TcpLastDatagrams {
 public:
  /// The kernel first repeats the first packet of a connection after a second.
  static constexpr std::chrono::milliseconds kTime{2500};

  /// Takes all senders of one queue pair. They have kTime.
  void add(std::list<TcpDatagrams>&& senders);
  [[nodiscard]] bool empty() const noexcept { return waiting_.empty(); }
  /// Continues to send, without waiting. Gives up those whose time is over.
  void advance();

 private:
  using Clock = std::chrono::steady_clock;
  struct Waiting {
    TcpDatagrams sender;
    Clock::time_point give_up_at;
  };
  std::list<Waiting> waiting_;
};

}  // namespace rdmacomm::softdev
