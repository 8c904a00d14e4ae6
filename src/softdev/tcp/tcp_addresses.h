// tcp_addresses.h - at which addresses of this host a listener is reached.
#pragma once

#include <infiniband/verbs.h>

#include <string_view>
#include <vector>

namespace rdmacomm::softdev {

/// A set of addresses of this host, or all that it has. A port is bound to all addresses, so that no other process gets it at one of them;
/// a filter on the listening socket has the system drop connections to addresses outside the set, as if nobody was there. Some systems
/// refuse filters to users without privileges; so whoever accepts a connection asks contains(), too.
/// Threads: one at a time.
class TcpAddresses {
 public:
  /// What kListenVariable says, where that is not empty. false: something else than addresses.
  [[nodiscard]] static bool read(std::string_view text, TcpAddresses& addresses);

  [[nodiscard]] bool contains(const ibv_gid& address) const noexcept;
  [[nodiscard]] bool is_all() const noexcept { return all_; }
  /// true: it was not there before.
  bool add(const ibv_gid& address);
  bool add_all() noexcept;
  bool add(const TcpAddresses& others);
  /// Has the system take connections by `socket` to these only. 0, or an errno value: it takes them to all addresses.
  int apply_to(int socket) const;

 private:
  bool all_ = false;
  std::vector<ibv_gid> some_;
};

}  // namespace rdmacomm::softdev
