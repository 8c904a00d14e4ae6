#include "mesh_comm_service/node_result.h"

#include <algorithm>
#include <bit>

#include "base/printable.h"
#include "connector/handshake.h"
#include "mesh_comm_service/cluster.h"

namespace rdmacomm::mesh {
namespace {

double per_ns(std::uint64_t amount, std::uint64_t elapsed_ns) noexcept {
  return elapsed_ns == 0 ? 0 : static_cast<double>(amount) / static_cast<double>(elapsed_ns);
}

void put_double(WireWriter& writer, double value) {
  writer.put(std::bit_cast<std::uint64_t>(value));
}
double get_double(WireReader& reader) {
  return std::bit_cast<double>(reader.get<std::uint64_t>());
}

void encode(WireWriter& writer, const PeerResult& peer) {
  writer.put(peer.rank);
  for (const std::uint64_t value : {peer.messages, peer.bytes, peer.counted_messages, peer.counted_bytes, peer.corrupt,
                                    peer.elapsed_ns, std::uint64_t{peer.latency_us.count}}) {
    writer.put(value);
  }
  const programs::Summary& us = peer.latency_us;
  for (const double value : {us.min, us.p50, us.p99, us.p999, us.max, us.mean}) put_double(writer, value);
  writer.put(static_cast<std::uint8_t>(peer.lost));
}

PeerResult decode_peer(WireReader& reader) {
  PeerResult peer;
  peer.rank = reader.get<std::uint32_t>();
  for (std::uint64_t* const value :
       {&peer.messages, &peer.bytes, &peer.counted_messages, &peer.counted_bytes, &peer.corrupt, &peer.elapsed_ns}) {
    *value = reader.get<std::uint64_t>();
  }
  programs::Summary& us = peer.latency_us;
  us.count = static_cast<std::size_t>(reader.get<std::uint64_t>());
  for (double* const value : {&us.min, &us.p50, &us.p99, &us.p999, &us.max, &us.mean}) *value = get_double(reader);
  peer.lost = reader.get<std::uint8_t>() != 0;
  return peer;
}

}  // namespace

double PeerResult::gb_per_s() const noexcept {
  return per_ns(bytes, elapsed_ns);
}
double PeerResult::mops_per_s() const noexcept {
  return per_ns(messages, elapsed_ns) * 1e3;
}

std::uint64_t NodeResult::messages() const noexcept {
  std::uint64_t sum = 0;
  for (const PeerResult& peer : peers) sum += peer.messages;
  return sum;
}
std::uint64_t NodeResult::bytes() const noexcept {
  std::uint64_t sum = 0;
  for (const PeerResult& peer : peers) sum += peer.bytes;
  return sum;
}
double NodeResult::gb_per_s() const noexcept {
  return per_ns(bytes(), elapsed_ns);
}
double NodeResult::mops_per_s() const noexcept {
  return per_ns(messages(), elapsed_ns) * 1e3;
}

double NodeResult::fairness() const noexcept {
  double slowest = 0;
  double fastest = 0;
  bool any = false;
  for (const PeerResult& peer : peers) {
    if (peer.lost) continue;
    const double rate = peer.gb_per_s();
    slowest = any ? std::min(slowest, rate) : rate;
    fastest = any ? std::max(fastest, rate) : rate;
    any = true;
  }
  return fastest > 0 ? slowest / fastest : 1;
}

void NodeResult::encode(WireWriter& writer) const {
  writer.put(rank);
  writer.put_text(address);
  writer.put(pid);
  for (const std::uint64_t value : {setup_us, elapsed_ns, cpu_us, memory_bytes, peak_memory_bytes}) writer.put(value);
  writer.put(queue_pairs);
  writer.put(threads);
  latency_ns.encode(writer);
  writer.put(static_cast<std::uint32_t>(peers.size()));
  for (const PeerResult& peer : peers) mesh::encode(writer, peer);
}

Result<NodeResult> NodeResult::decode(WireReader& reader) {
  NodeResult result;
  result.rank = reader.get<std::uint32_t>();
  result.address = printable(reader.get_text(), 300);
  result.pid = reader.get<std::uint32_t>();
  for (std::uint64_t* const value :
       {&result.setup_us, &result.elapsed_ns, &result.cpu_us, &result.memory_bytes, &result.peak_memory_bytes}) {
    *value = reader.get<std::uint64_t>();
  }
  result.queue_pairs = reader.get<std::uint32_t>();
  result.threads = reader.get<std::uint32_t>();
  auto latency = programs::LatencyHistogram::decode(reader);
  if (!latency) return latency.error();
  result.latency_ns = std::move(*latency);
  const auto count = reader.get<std::uint32_t>();
  for (std::uint32_t i = 0; i < count && reader.ok(); ++i) result.peers.push_back(decode_peer(reader));
  const bool in_range = result.rank < kMaxNodes &&
                        std::ranges::all_of(result.peers, [](const PeerResult& peer) { return peer.rank < kMaxNodes; });
  if (!reader.ok() || !in_range) return make_error(Errc::kBadMessage, "the results of a node cannot be decoded");
  return result;
}

}  // namespace rdmacomm::mesh
