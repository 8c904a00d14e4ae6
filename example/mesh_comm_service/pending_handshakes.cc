#include "mesh_comm_service/pending_handshakes.h"

#include <arpa/inet.h>

#include <algorithm>

namespace rdmacomm::mesh {

/// Parses the address in "10.0.0.2", "10.0.0.2:2020", "2001:db8::1", "[2001:db8::1]:2020" or "[fe80::1%eth0]:2020".
/// IPv4 in its mapped form.
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
  OfRank& of_rank = by_rank_[rank];
  auto& places = of_rank.places;
  auto& waiting = of_rank.waiting;
  Handshake begun{.address = address, .of_known_host = knows_host(address), .since = now};
  const auto take = [&]() -> std::optional<std::string> {
    std::erase(waiting, address);
    places.push_back(std::move(begun));
    return {};
  };
  if (places.empty()) {
    if (waiting.empty() || waiting.front() == address) return take();
  } else if (Handshake& first = places.front(); begun.of_known_host && !first.of_known_host) {
    std::erase(waiting, address);
    return std::optional(std::exchange(first, std::move(begun)).address);  // it was the only one
  } else if (begun.of_known_host == first.of_known_host && (waiting.empty() || waiting.front() == address)) {
    if (begun.of_known_host && places.size() < places_) return take();
    if (now - first.since >= kPatience) {
      std::optional<std::string> late = std::move(first.address);
      places.pop_front();
      take();
      return late;
    }
  }
  if (begun.of_known_host && !waits(rank, address)) waiting.push_back(address);
  return make_error(Errc::kServerBusy, "a handshake of node " + std::to_string(rank) + " is under way" +
                                           (places.empty() ? std::string() : ", from " + places.front().address));
}

bool PendingHandshakes::waits(int rank, const std::string& address) const {
  const auto found = by_rank_.find(rank);
  return found != by_rank_.end() && std::ranges::find(found->second.waiting, address) != found->second.waiting.end();
}

PendingHandshakes::Clock::time_point PendingHandshakes::next_look(int rank) const {
  const auto found = by_rank_.find(rank);
  if (found == by_rank_.end() || found->second.places.empty()) return Clock::time_point::max();
  return found->second.places.front().since + kPatience;
}

void PendingHandshakes::remove(const std::string& address) {
  for (auto& [rank, of_rank] : by_rank_) {
    std::erase_if(of_rank.places, [&](const Handshake& each) { return each.address == address; });
    std::erase(of_rank.waiting, address);
  }
}

}  // namespace rdmacomm::mesh
