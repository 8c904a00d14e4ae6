// tcp_datagrams.h - datagrams to one queue pair of another host.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "softdev/local/local_wire.h"
#include "softdev/tcp/tcp_link.h"

namespace rdmacomm::softdev {

/// A datagram is done when it is in the buffer here. One that finds no room there waits for it while the target takes
/// others; where it has taken none for kVanishedAfter, what finds no room is lost.
/// Threads: one at a time, the holder of the send queue.
class TcpDatagrams {
 public:
  TcpDatagrams(TcpService& service, const LocalEnd& own, const Route& route, std::uint32_t target_qpn);

  /// Done, or kBusy: no room for now. The request is known to be right.
  [[nodiscard]] ExecResult send(const ibv_send_wr& wr, std::uint32_t bytes);
  /// Connects, and sends, without waiting.
  void advance();

 private:
  void connect();
  void flush();
  void notice_end();
  void close();
  void want_output(bool wanted);
  [[nodiscard]] std::size_t unsent() const noexcept { return out_.size() - out_done_; }

  TcpService& service_;
  const LocalEnd own_;
  TcpLink link_;
  UniqueFd socket_;
  bool wants_output_ = true;
  std::vector<std::byte> out_;
  std::size_t out_done_ = 0;
  std::chrono::steady_clock::time_point moved_at_ = std::chrono::steady_clock::now();
};

}  // namespace rdmacomm::softdev
