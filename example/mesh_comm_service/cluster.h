// cluster.h - which nodes a mesh has, and which of them this one is.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "rdmacomm/base/result.h"
#include "rdmacomm/connector/tcp_options.h"

namespace rdmacomm::mesh {

inline constexpr std::size_t kMinNodes = 2;
inline constexpr std::size_t kMaxNodes = 1024;

/// Where each node listens; a node's rank is its place in the list. A value.
using Cluster = std::vector<HostPort>;

/// "h1[:port],h2,...", also with blanks. A host without a port gets `port`, and where it is named so more than once,
/// `port` + 1, `port` + 2, ... for its second, third, ... place. IPv6 addresses with a port are written in brackets.
/// Returns  kInvalidArgument: fewer than kMinNodes or more than kMaxNodes, an empty name, a port that is none, or the same
///          host and port twice
[[nodiscard]] Result<Cluster> parse_cluster(std::string_view text, std::uint16_t port);
/// The same of a file's content: one node a line, from "#" on a comment. "h1 slots=3", as MPI has it, stands for three
/// lines "h1". Returns  kInvalidArgument: as parse_cluster; the context names the line
[[nodiscard]] Result<Cluster> parse_host_file(std::string_view content, std::uint16_t port);

/// Words after --cluster that belong to its list: "--cluster", "h1", "h2", "--op=read" becomes "--cluster=h1,h2",
/// "--op=read". The same for --cluster=h1.
[[nodiscard]] std::vector<std::string> join_cluster_words(const std::vector<std::string>& arguments);

/// Whether an address of that host is one of this machine's.
/// Returns  as find_addresses
[[nodiscard]] Result<bool> is_local(const HostPort& node);
/// Whether node `rank`, which is this one, is to listen at all of its addresses, instead of that in the list. So where its name stands
/// for the loopback interface here, as it does on many hosts (127.0.1.1 in /etc/hosts), and others are not on it; and where its address
/// is another machine's by its looks, as one that is translated.
[[nodiscard]] bool listens_everywhere(const Cluster& cluster, int rank);
/// The rank of the one node that `local` is true for.
/// Returns  kInvalidArgument: none, or several (the context says which, and how to choose); or, where it is none, what
///          `local` has failed with first
[[nodiscard]] Result<int> find_rank(const Cluster& cluster, const std::function<Result<bool>(const HostPort&)>& local);

}  // namespace rdmacomm::mesh
