// Lists of hosts in user input: --cluster, host files, HOST:PORT and HOST:PATH.
#include <set>

#include "connector/host_text.h"
#include "fuzz/properties.h"
#include "mesh_comm_service/cluster.h"
#include "rdma_copy/remote_path.h"

namespace rdmacomm::fuzz {
namespace {
namespace host_list_target {

constexpr std::uint16_t kPort = 2020;

void check_cluster(const Result<mesh::Cluster>& cluster) {
  if (!check_outcome(cluster)) return;
  RDMACOMM_FUZZ_CHECK(cluster->size() >= mesh::kMinNodes && cluster->size() <= mesh::kMaxNodes);
  std::set<std::string> seen;
  std::string list;
  for (const HostPort& node : *cluster) {
    RDMACOMM_FUZZ_CHECK(!node.host.empty() && node.port > 0 && seen.insert(node.to_text()).second);
    list += (list.empty() ? "" : ",") + node.to_text();
  }
  const auto again = mesh::parse_cluster(list, kPort);
  RDMACOMM_FUZZ_CHECK(again.has_value() && again->size() == cluster->size());
  for (std::size_t i = 0; i < cluster->size(); ++i) {
    RDMACOMM_FUZZ_CHECK((*again)[i].to_text() == (*cluster)[i].to_text());
  }
}

void check_host(std::string_view text) {
  const auto host = parse_host(text);
  if (!check_outcome(host)) return;
  RDMACOMM_FUZZ_CHECK(!host->host.empty() && host->port.value_or(1) > 0);
  RDMACOMM_FUZZ_CHECK(text.starts_with(host->host));
  check_harmless(host->host);
  const auto again = parse_host(host->host + (host->port ? ":" + std::to_string(*host->port) : ""));
  RDMACOMM_FUZZ_CHECK(again.has_value() && again->host == host->host && again->port == host->port);
}

void check_remote_path(std::string_view text) {
  const auto place = copying::parse_remote_path(text);
  if (!check_outcome(place) || !*place) return;
  RDMACOMM_FUZZ_CHECK(text.ends_with((*place)->path) && !(*place)->host.host.empty());
}

void check_words(std::string_view text) {
  std::vector<std::string> words;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('\n'), text.size());
    words.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  const auto joined = mesh::join_cluster_words(words);
  RDMACOMM_FUZZ_CHECK(joined.size() <= words.size());
  RDMACOMM_FUZZ_CHECK(mesh::join_cluster_words(joined).size() <= joined.size());
}

void run(Bytes input) {
  const std::string_view text = text_of(input);
  check_cluster(mesh::parse_cluster(text, kPort));
  check_cluster(mesh::parse_cluster(text, 65535));
  check_cluster(mesh::parse_host_file(text, kPort));
  check_host(text);
  check_remote_path(text);
  check_words(text);
}

std::vector<Seed> seeds() {
  return {
      {"cluster", bytes_of("node1,node2:2021, node3 ,node1")},
      {"cluster_ipv6", bytes_of("[fe80::1%eth0]:2020,::1,[::2],10.0.0.1")},
      {"host_file", bytes_of("# the nodes\nnode1 slots=3\n\nnode2:2021 # the other\r\n[::1]:5\n")},
      {"host_file_with_byte_order_mark", bytes_of("\xEF\xBB\xBFnode1\nnode2\n")},
      {"too_many_slots", bytes_of("node1 slots=1024\nnode2\n")},
      {"port_that_is_none", bytes_of("node1:65536,node2:0")},
      {"remote_path", bytes_of("node7:2020:backup/today")},
      {"remote_path_ipv6", bytes_of("[::1]:2020:/tmp/x")},
      {"words", bytes_of("--cluster\nh1\nh2\n--op=read\n--cluster=h3\nh4")},
  };
}

}  // namespace host_list_target
}  // namespace

const Target host_list{"host_list", host_list_target::run, host_list_target::seeds};

}  // namespace rdmacomm::fuzz
