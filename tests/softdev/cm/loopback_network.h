// loopback_network.h - a private network, for tests with the port that all listening processes of a user share.
#pragma once

#include "support/own_network.h"

namespace rdmacomm::softdev::test {

/// A network in which no other process shares the port: one that ends would take the test's connections with it.
struct NetworkWithLoopback : testing::OwnNetwork {
  NetworkWithLoopback() {
    if (why_not().empty()) ip("link set lo up");
  }
};

}  // namespace rdmacomm::softdev::test
