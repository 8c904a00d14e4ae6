// group_sender.h - sends datagrams to the members of multicast groups on other hosts.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <vector>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {

class PortWatch;
struct LocalEnd;

/// Sends each datagram once, by IP multicast, from the address that its address handle names. Members on this host do
/// not get it. As on hardware, nobody knows whether it arrives.
/// Threads: one at a time, the holder of the send queue's lock.
class GroupSender {
 public:
  explicit GroupSender(PortWatch& port) noexcept : port_(port) {}

  /// Sends a datagram of `bytes`, whose address handle names a group. The caller has checked the request.
  void send(const ibv_send_wr& wr, const LocalEnd& own, std::uint32_t bytes) noexcept;

 private:
  struct Socket {
    ibv_gid source;
    UniqueFd socket;
  };
  [[nodiscard]] int socket_from(const ibv_gid& source);

  PortWatch& port_;
  std::vector<Socket> sockets_;
};

}  // namespace rdmacomm::softdev
