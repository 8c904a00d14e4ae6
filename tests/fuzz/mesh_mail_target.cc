// Messages between the nodes of a mesh: the introduction, mail, and a node's figures.
#include "fuzz/properties.h"
#include "mesh_comm_service/cluster.h"
#include "mesh_comm_service/mail.h"
#include "mesh_comm_service/terms.h"

namespace rdmacomm::fuzz {
namespace {
namespace mesh_mail_target {

using namespace mesh;

void check_result(const NodeResult& result) {
  check_harmless(result.address);
  RDMACOMM_FUZZ_CHECK(result.rank < kMaxNodes);
  for (const PeerResult& peer : result.peers) RDMACOMM_FUZZ_CHECK(peer.rank < kMaxNodes);
  // The report calls these. They must not overflow, divide by zero or read beyond an array.
  (void)result.latency_ns.summary();
  (void)result.messages();
  (void)result.gb_per_s();
  (void)result.fairness();
}

void check_introduction(Bytes input) {
  const auto introduction = check_decode<Introduction>(input);
  if (!introduction) return;
  RDMACOMM_FUZZ_CHECK(introduction->rank < introduction->nodes && introduction->nodes <= kMaxNodes);
  RDMACOMM_FUZZ_CHECK(introduction->terms.validate().ok());
  RDMACOMM_FUZZ_CHECK(introduction->terms.bytes_per_peer() >= introduction->terms.size);
  check_harmless(introduction->terms.to_text());
  RDMACOMM_FUZZ_CHECK(!introduction->check_fits(*introduction).ok());  // two nodes with one rank
  Introduction other = *introduction;
  other.rank = (introduction->rank + 1) % introduction->nodes;
  RDMACOMM_FUZZ_CHECK(introduction->check_fits(other).ok() == (introduction->nodes > 1));
  other.terms.depth ^= 1;
  RDMACOMM_FUZZ_CHECK(!check_outcome(introduction->check_fits(other)));
}

void run(Bytes input) {
  check_introduction(input);
  if (const auto mail = check_decode<Mail>(input)) {
    check_harmless(mail->text);
    check_harmless(mail->tally.difference);
    RDMACOMM_FUZZ_CHECK(mail->rank < kMaxNodes);
    check_result(mail->result);
  }
  if (const auto result = check_decode<NodeResult>(input)) check_result(*result);
}

std::vector<Seed> seeds() {
  Introduction introduction{.rank = 1, .nodes = 4, .incarnation = 0x0123456789abcdef};
  introduction.terms = {.op = Operation::kWrite, .size = 4096, .total = 1 << 20, .depth = 64, .verify = true};
  introduction.running = true;
  NodeResult result;
  result.rank = 1;
  result.address = "node7:2020";
  result.pid = 4711;
  result.elapsed_ns = 1'000'000;
  for (const std::uint64_t sample : {900, 1000, 1100, 50'000}) result.latency_ns.add(sample);
  PeerResult peer;
  peer.rank = 2;
  peer.messages = 256;
  peer.bytes = 1 << 20;
  peer.elapsed_ns = 900'000;
  peer.latency_us = {.count = 4, .min = 0.9, .p50 = 1, .p99 = 50, .p999 = 50, .max = 50, .mean = 13};
  result.peers = {peer};
  Mail figures = mail_of(MailKind::kResult);
  figures.result = result;
  Mail checked = mail_of(MailKind::kChecked);
  checked.tally = {.messages = 256, .bytes = 1 << 20, .corrupt = 1, .difference = "byte 17 is 3 in place of 4"};
  Mail stop = mail_of(MailKind::kStop);
  stop.rank = 3;
  stop.text = "it was silent for 10 s";
  return {
      {"introduction", introduction.encode()},
      {"mail_ready", mail_of(MailKind::kReady).encode()},
      {"mail_checked", checked.encode()},
      {"mail_result", figures.encode()},
      {"mail_stop", stop.encode()},
      {"node_result", packed(result)},
  };
}

}  // namespace mesh_mail_target
}  // namespace

const Target mesh_mail{"mesh_mail", mesh_mail_target::run, mesh_mail_target::seeds};

}  // namespace rdmacomm::fuzz
