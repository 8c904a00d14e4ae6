// dead_initiator.h - shared memory as a target finds it after its initiator was killed between two stores.
#pragma once

#include <gtest/gtest.h>
#include <sched.h>

#include <chrono>
#include <cstdint>

#include "softdev/local/peer.h"

namespace rdmacomm::softdev::test {

/// Uses queue pair `target` as an initiator does, runs `store`, and ends. Returns when the target has noticed.
template <typename Store>
void die_at_work(std::uint32_t target, std::uint32_t initiator, Store&& store) {
  int error = 0;
  auto peer = Peer::connect(target, error);
  ASSERT_NE(peer, nullptr) << error;
  const auto remote = peer->attach(target, initiator, error);
  ASSERT_NE(remote, nullptr);
  remote->view.shared->busy.store(initiator, std::memory_order_seq_cst);
  store(*remote);
  peer.reset();  // the kernel closes the connection
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(20);
  while (remote->view.shared->busy.load() != 0 && std::chrono::steady_clock::now() < end) sched_yield();
  ASSERT_EQ(remote->view.shared->busy.load(), 0U);
}

}  // namespace rdmacomm::softdev::test
