// tcp_addresses.h - the local addresses at which a listener accepts connections.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>
#include <vector>

namespace rdmacomm::softdev {

/// A set of addresses of this host, or all of its addresses. A port is bound to all addresses, so that no other process
/// gets it at one of them. A filter on the listening socket makes the kernel drop connections to other addresses, as if
/// no socket listened there. Some systems refuse filters to unprivileged users, so code that accepts a connection must
/// also check contains().
/// Threads: one at a time.
class TcpAddresses {
 public:
  /// Reads the value of kListenVariable, unless it is empty. Returns false: `text` is no list of addresses.
  [[nodiscard]] static bool read(std::string_view text, TcpAddresses& addresses);

  [[nodiscard]] bool contains(const ibv_gid& address) const noexcept;
  [[nodiscard]] bool is_all() const noexcept { return all_; }
  /// Returns  true: the address was not in the set before.
  bool add(const ibv_gid& address);
  bool add_all() noexcept;
  bool add(const TcpAddresses& others);
  /// Limits the connections that `socket` accepts to these addresses. Returns 0, or an errno value: then it accepts
  /// connections to all addresses.
  int apply_to(int socket) const;

 private:
  bool all_ = false;
  std::vector<ibv_gid> some_;
};

}  // namespace rdmacomm::softdev
