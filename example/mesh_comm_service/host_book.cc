#include "mesh_comm_service/host_book.h"

#include <algorithm>
#include <atomic>
#include <system_error>
#include <thread>

namespace rdmacomm::mesh {

HostBook::HostBook(Deadline found_by)
    : HostBook(found_by, [](const HostPort& node, Deadline deadline) { return find_server(node, deadline); }) {}

HostBook::HostBook(Deadline found_by, LookUp look_up) : found_by_(found_by), look_up_(std::move(look_up)) {}

void HostBook::look_up(const Cluster& nodes) {
  struct Entry {
    const HostPort& node;
    Addresses& addresses;
  };
  std::vector<Entry> asked;
  for (const HostPort& node : nodes) {
    const auto [entry, is_new] = found_.try_emplace(node.host, make_error(Errc::kStopped, "not looked up yet"));
    if (is_new) asked.push_back({node, entry->second});
  }
  std::atomic<std::size_t> next{0};
  const auto work = [&] {
    for (std::size_t i = next++; i < asked.size(); i = next++) {
      asked[i].addresses = look_up_(asked[i].node, found_by_);
    }
  };
  std::vector<std::jthread> others;
  try {
    while (others.size() + 1 < std::min(asked.size(), kAtOnce)) others.emplace_back(work);
  } catch (const std::system_error&) {
    // No more threads: the existing ones do all the work.
  }
  work();
}

const HostBook::Addresses& HostBook::of(const HostPort& node) {
  if (!found_.contains(node.host)) look_up({node});
  return found_.at(node.host);
}

}  // namespace rdmacomm::mesh
