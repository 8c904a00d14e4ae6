#include "support/client_errors.h"

#include "support/program.h"

namespace rdmacomm::programs {

ClientErrors::~ClientErrors() {
  if (const std::string rest = pace_.left_out(); !rest.empty()) say("more clients ended in error: " + rest);
}

void ClientErrors::tell(const std::string& peer, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (const auto line = pace_.line(peer, text, HostPace::Clock::now())) say(*line);
}

}  // namespace rdmacomm::programs
