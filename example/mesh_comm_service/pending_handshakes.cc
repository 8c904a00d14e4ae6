#include "mesh_comm_service/pending_handshakes.h"

#include <arpa/inet.h>

#include <algorithm>

namespace rdmacomm::mesh {

/// The address in "10.0.0.2", "10.0.0.2:2020", "2001:db8::1", "[2001:db8::1]:2020", "[fe80::1%eth0]:2020", IPv4 in its mapped form.
std::optional<PendingHandshakes::Host> PendingHandshakes::host_of(std::string_view text) {
  std::string host(text);
  if (host.starts_with('[')) {
    host = host.substr(1, host.find(']') - 1);
  } else if (std::ranges::count(host, ':') == 1) {
    host.resize(host.find(':'));
  }
  host = host.substr(0, host.find('%'));
  Host bytes{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff};
  if (inet_pton(AF_INET, host.c_str(), bytes.data() + 12) == 1) return bytes;
  if (inet_pton(AF_INET6, host.c_str(), bytes.data()) == 1) return bytes;
  return {};
}

void PendingHandshakes::know_host(std::string_view host) {
  if (const auto known = host_of(host)) known_hosts_.insert(*known);
}

bool PendingHandshakes::knows_host(std::string_view address) const {
  const auto host = host_of(address);
  return host && known_hosts_.contains(*host);
}

Result<std::optional<std::string>> PendingHandshakes::enter(int rank, const std::string& address,
                                                            Clock::time_point now) {
  Handshake begun{.address = address, .of_known_host = knows_host(address), .since = now};
  const auto present = by_rank_.find(rank);
  if (present == by_rank_.end()) {
    by_rank_[rank] = std::move(begun);
    return std::optional<std::string>();
  }
  const Handshake& other = present->second;
  const bool gives_way =
      begun.of_known_host != other.of_known_host ? begun.of_known_host : now - other.since >= kPatience;
  if (!gives_way) {
    return make_error(Errc::kServerBusy,
                      "a handshake of node " + std::to_string(rank) + " is under way, from " + other.address);
  }
  return std::optional(std::exchange(present->second, std::move(begun)).address);
}

void PendingHandshakes::leave(const std::string& address) {
  std::erase_if(by_rank_, [&](const auto& each) { return each.second.address == address; });
}

}  // namespace rdmacomm::mesh
