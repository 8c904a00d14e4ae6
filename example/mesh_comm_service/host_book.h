// host_book.h - the addresses of a cluster's hosts, found within one deadline.
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

/// Looks each host up once. Names whose name server does not answer take, all together, until one deadline. Threads:
/// one at a time.
class HostBook {
 public:
  using Addresses = Result<std::vector<HostAddress>>;
  /// As find_server(); called from several threads at once.
  using LookUp = std::function<Addresses(const HostPort&, Deadline)>;
  /// How many names are looked up at a time.
  static constexpr std::size_t kAtOnce = 16;

  explicit HostBook(Deadline found_by);
  HostBook(Deadline found_by, LookUp look_up);

  /// Looks up the hosts that are not known yet, kAtOnce at a time.
  void look_up(const Cluster& nodes);
  /// The addresses of a node's host; looks it up first if that has not been done. The reference is valid until the next
  /// call.
  /// Returns  as find_server()
  [[nodiscard]] const Addresses& of(const HostPort& node);

 private:
  const Deadline found_by_;
  const LookUp look_up_;
  std::map<std::string, Addresses> found_;  // by host
};

}  // namespace rdmacomm::mesh
