// tcp_datagrams.h - sends datagrams to one queue pair on another host.
#pragma once

#include <infiniband/verbs.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "softdev/local/local_wire.h"
#include "softdev/tcp/tcp_link.h"

namespace rdmacomm::softdev {

/// A datagram completes when it is in the local buffer. If the buffer is full, it waits while the target accepts
/// others. If the target has accepted none for kVanishedAfter, datagrams that do not fit are lost.
/// Threads: one at a time, the holder of the send queue's lock.
class TcpDatagrams {
 public:
  TcpDatagrams(TcpService& service, const LocalEnd& own, const Route& route, std::uint32_t target_qpn);

  /// Returns  done, or kBusy: no room at present. The caller has checked the request.
  [[nodiscard]] ExecResult send(const ibv_send_wr& wr, std::uint32_t bytes);
  /// Connects and sends, without waiting.
  void advance();
  /// True if completed datagrams still wait in the local buffer.
  [[nodiscard]] bool has_unsent() const noexcept { return unsent() != 0; }

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
