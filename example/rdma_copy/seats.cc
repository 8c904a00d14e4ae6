#include "rdma_copy/seats.h"

#include <arpa/inet.h>

#include <algorithm>
#include <array>

namespace rdmacomm::copying {

std::string seat_holder(std::string_view peer) {
  peer = peer.substr(0, peer.find(' '));
  peer = peer.substr(0, peer.rfind(':'));
  if (!peer.starts_with('[')) return std::string(peer);
  peer.remove_prefix(1);
  const std::string host(peer.substr(0, peer.find_first_of("%]")));
  in6_addr address{};
  if (::inet_pton(AF_INET6, host.c_str(), &address) != 1) return host;
  std::array<char, INET6_ADDRSTRLEN> text{};
  if (IN6_IS_ADDR_V4MAPPED(&address)) {
    return ::inet_ntop(AF_INET, &address.s6_addr[12], text.data(), text.size());
  }
  if (!IN6_IS_ADDR_LINKLOCAL(&address) && !IN6_IS_ADDR_LOOPBACK(&address))
    std::fill_n(&address.s6_addr[8], 8, std::uint8_t{0});
  return ::inet_ntop(AF_INET6, &address, text.data(), text.size());
}

Status Seats::look(const std::string& address) const {
  if (taken_ >= total_) {
    return make_error(Errc::kPeerRefused, "this server makes " + std::to_string(total_) +
                                              " copies already, and no more at once: try again later");
  }
  const auto of = of_.find(address);
  if (of == of_.end() || of->second < total_ / 2) return {};
  return make_error(Errc::kPeerRefused, "this server makes " + std::to_string(of->second) + " copies for " + address +
                                            " already, and no more at once for one address: try again later");
}

Status Seats::offer(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  return look(address);
}

Status Seats::take(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (Status free = look(address); !free.ok()) return free;
  ++taken_;
  ++of_[address];
  return {};
}

void Seats::give_back(const std::string& address) {
  const std::lock_guard lock(mutex_);
  --taken_;
  const auto of = of_.find(address);
  if (--of->second == 0) of_.erase(of);
}

}  // namespace rdmacomm::copying
