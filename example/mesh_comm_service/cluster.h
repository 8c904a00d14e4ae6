// cluster.h - which nodes a mesh has.
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

/// Where each node listens; a node's rank is its place in the list. A value.
using Cluster = std::vector<HostPort>;

/// "h1[:port],h2,...", also with blanks. A host without a port gets `port`, and where it is named so more than once,
/// `port` + 1, `port` + 2, ... for its second, third, ... place. IPv6 addresses with a port are written in brackets.
/// Returns  kInvalidArgument: fewer than kMinNodes or more than kMaxNodes, an empty name, a port that is none, or the
///          same host and port twice
[[nodiscard]] Result<Cluster> parse_cluster(std::string_view text, std::uint16_t port);
/// The same of a file's content: one node a line, from "#" on a comment. "h1 slots=3", as MPI has it, stands for three
/// lines "h1". Returns  kInvalidArgument: as parse_cluster; the context names the line
[[nodiscard]] Result<Cluster> parse_host_file(std::string_view content, std::uint16_t port);

/// Words after --cluster that belong to its list: "--cluster", "h1", "h2", "--op=read" becomes "--cluster=h1,h2",
/// "--op=read". The same for --cluster=h1.
[[nodiscard]] std::vector<std::string> join_cluster_words(const std::vector<std::string>& arguments);

}  // namespace rdmacomm::mesh
