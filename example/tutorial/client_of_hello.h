// client_of_hello.h - main() for programs of the tutorial that are only clients of 01_hello.
#pragma once

#include "../two_ends.h"

/// As two_ends::run(), without a server.
inline int run_client(int count, char** words, const std::function<rdmacomm::Status(const rdmacomm::HostPort&)>& use) {
  const auto no_server = [] {
    return rdmacomm::make_error(rdmacomm::Errc::kInvalidArgument, "give the HOST:PORT of a 01_hello");
  };
  return two_ends::run(count, words, no_server, use);
}
