// host_book.h - the addresses of all hosts of a cluster, found before one deadline.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "connector/host_address.h"
#include "mesh_comm_service/cluster.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

/// Looks up each host once. One deadline limits the time for all names together, even if their name servers do not
/// answer. Threads: one at a time.
class HostBook {
 public:
  using Addresses = Result<std::vector<HostAddress>>;
  /// As find_server(); called from several threads at once.
  using LookUp = std::function<Addresses(const HostPort&, Deadline)>;
  /// The number of simultaneous lookups.
  static constexpr std::size_t kAtOnce = 16;

  explicit HostBook(Deadline found_by);
  HostBook(Deadline found_by, LookUp look_up);

  /// Looks up the hosts that are not known yet, kAtOnce at a time.
  void look_up(const Cluster& nodes);
  /// The addresses of the host of `node`; looks it up if it was not looked up before. The reference is valid until the
  /// next call.
  /// Returns  as find_server()
  [[nodiscard]] const Addresses& of(const HostPort& node);

 private:
  const Deadline found_by_;
  const LookUp look_up_;
  std::map<std::string, Addresses> found_;  // by host
};

}  // namespace rdmacomm::mesh
