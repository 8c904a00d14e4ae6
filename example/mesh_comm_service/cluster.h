// cluster.h - the list of nodes of a mesh.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/connector.h"
#include "rdmacomm/result.h"

namespace rdmacomm::mesh {

inline constexpr std::size_t kMinNodes = 2;
inline constexpr std::size_t kMaxNodes = 1024;

/// The address of each node; a node's rank is its position in the list. A value.
using Cluster = std::vector<HostPort>;

/// Parses "h1[:port],h2,...", also with blanks. A host without a port gets `port`. If it is listed without a port
/// several times, its second, third, ... entry gets `port` + 1, `port` + 2, ... IPv6 addresses with a port are written
/// in brackets.
/// Returns  kInvalidArgument: fewer than kMinNodes or more than kMaxNodes, an empty name, a wrong port, or the same
///          host and port twice
[[nodiscard]] Result<Cluster> parse_cluster(std::string_view text, std::uint16_t port);
/// Parses the content of a host file: one node on each line; "#" begins a comment. "h1 slots=3", the notation of MPI,
/// means three lines "h1". Returns  kInvalidArgument: as parse_cluster; the context names the line
[[nodiscard]] Result<Cluster> parse_host_file(std::string_view content, std::uint16_t port);

/// Joins the words after --cluster that belong to its list: "--cluster", "h1", "h2", "--op=read" becomes
/// "--cluster=h1,h2", "--op=read". The same for --cluster=h1.
[[nodiscard]] std::vector<std::string> join_cluster_words(const std::vector<std::string>& arguments);

}  // namespace rdmacomm::mesh
