// The bugs of earlier libraries that a checker must find, reproduced in small programs for check_test.py.
//
// usage: check_predecessors CASE bad|good
//
// A comment "// RULE" at the end of a line marks the place that the checker must name.
#include <infiniband/verbs.h>

#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "scene.h"

namespace {

using scene::Memory;
using scene::Pair;
using scene::Qp;

/// rdma_comm_core posts the same receive buffer twice, so the second message replaces the first.
void one_receive_buffer(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  constexpr std::uint32_t kBlock = 1024;
  for (std::uint32_t i = 0; i < 2; ++i)
    NEED(pair.right.recv(inbox.slice(bad ? 0 : i * kBlock, kBlock), i) == 0);  // receive-posted-twice
  for (std::uint32_t i = 0; i < 2; ++i) {
    std::memset(memory.data, static_cast<int>('0' + i), kBlock);
    NEED(pair.left.send(memory.slice(0, kBlock)) == 0);
    pair.left.finish();
  }
  pair.right.finish();
  pair.right.finish();
}

/// The same library sizes a shared completion queue for its first user. The other queue pairs overrun it.
void one_completion_queue(bool bad) {
  const scene::Device device;
  constexpr int kUsers = 5;
  constexpr std::uint32_t kDepth = 64;
  ibv_cq* const cq = ibv_create_cq(device.context, static_cast<int>(kDepth) * (bad ? 1 : kUsers), nullptr, nullptr, 0);
  NEED(cq != nullptr);
  const Memory inbox(device);
  std::vector<ibv_qp*> qps;
  for (int i = 0; i < kUsers; ++i) {
    ibv_qp_init_attr init{};
    init.send_cq = init.recv_cq = cq;
    init.cap = {kDepth, kDepth, 1, 1, 0};
    init.qp_type = IBV_QPT_RC;
    ibv_qp* const qp = ibv_create_qp(device.pd, &init);
    NEED(qp != nullptr);
    ibv_qp_attr attributes{};
    attributes.qp_state = IBV_QPS_INIT;
    attributes.port_num = 1;
    NEED(ibv_modify_qp(qp, &attributes, IBV_QP_STATE | IBV_QP_PKEY_INDEX | IBV_QP_PORT | IBV_QP_ACCESS_FLAGS) == 0);
    for (std::uint32_t j = 0; j < kDepth; ++j) {
      ibv_sge slice = inbox.slice((static_cast<std::size_t>(i) * kDepth + j) * 32, 32);
      ibv_recv_wr wr{};
      ibv_recv_wr* refused = nullptr;
      wr.sg_list = &slice;
      wr.num_sge = 1;
      NEED(ibv_post_recv(qp, &wr, &refused) == 0);  // completion-queue-too-small
    }
    qps.push_back(qp);
  }
  for (ibv_qp* const qp : qps) NEED(ibv_destroy_qp(qp) == 0);
  NEED(ibv_destroy_cq(cq) == 0);
}

/// The same library leaks queue pairs, with all that they need.
void leaked_queue_pairs(bool bad) {
  auto* const device = new scene::Device;
  auto* const qp = new Qp(*device);  // leak
  if (bad) return;
  delete qp;
  delete device;
}

/// One protection domain for each queue pair: a buffer is registered again for each, and the registrations leak.
void leaked_registrations(bool bad) {
  const scene::Device device;
  const Memory memory(device);
  std::vector<ibv_mr*> registrations;
  for (int i = 0; i < 3; ++i) {
    ibv_mr* const mr = ibv_reg_mr(device.pd, memory.data, scene::kBytes, scene::kLocalWrite);  // leak
    NEED(mr != nullptr);
    registrations.push_back(mr);
  }
  if (bad) std::exit(0);
  for (ibv_mr* const mr : registrations) NEED(ibv_dereg_mr(mr) == 0);
}

/// RDMA cat sends from and receives into one buffer. Data that arrives mangles data that is being sent.
void one_buffer_for_both(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  NEED(pair.left.recv(memory.slice(0, 4096)) == 0);
  NEED(pair.right.recv(inbox.slice(0, 4096)) == 0);
  NEED(pair.left.send(memory.slice(bad ? 0 : 4096, 4096)) == 0);  // overlap
  pair.left.finish();
  pair.right.finish();
}

/// A program that pipes data reads the next block into the buffer while the device still sends it.
void next_block_too_early(bool bad) {
  const Pair pair;
  const Memory memory(pair.device);
  const Memory inbox(pair.device);
  constexpr std::uint32_t kBlock = 4096;
  for (std::uint32_t i = 0; i < 2; ++i) NEED(pair.right.recv(inbox.slice(i * kBlock, kBlock)) == 0);
  for (std::uint32_t i = 0; i < 2; ++i) {
    const std::uint32_t block = bad ? 0 : i * kBlock;
    std::memset(memory.data + block, static_cast<int>('0' + i), kBlock);
    NEED(pair.left.send(memory.slice(block, kBlock)) == 0);  // send-buffer-changed
  }
  for (int i = 0; i < 2; ++i) {
    pair.left.finish();
    pair.right.finish();
  }
}

const std::map<std::string, void (*)(bool bad)> kCases{
    {"one_receive_buffer", one_receive_buffer},   {"one_completion_queue", one_completion_queue},
    {"leaked_queue_pairs", leaked_queue_pairs},   {"leaked_registrations", leaked_registrations},
    {"one_buffer_for_both", one_buffer_for_both}, {"next_block_too_early", next_block_too_early},
};

}  // namespace

int main(int count, char** words) {
  const auto found = count == 3 ? kCases.find(words[1]) : kCases.end();
  if (found == kCases.end()) {
    for (const auto& [name, function] : kCases) std::puts(name.c_str());
    return 2;
  }
  found->second(std::strcmp(words[2], "bad") == 0);
  return 0;
}
