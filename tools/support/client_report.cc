#include "support/client_report.h"

#include <iostream>

#include "support/program.h"

namespace rdmacomm::programs {

ClientReport::~ClientReport() {
  if (const std::string rest = served_.left_out(); !rest.empty())
    std::cout << "more served clients: " << rest << std::endl;
  if (const std::string rest = failed_.left_out(); !rest.empty()) say("more clients that failed: " + rest);
}

void ClientReport::failed(const std::string& peer, const std::string& text) {
  const std::lock_guard lock(mutex_);
  if (const auto line = failed_.line(peer, text, clock_())) say(*line);
}

void ClientReport::served(const std::string& peer) {
  const std::lock_guard lock(mutex_);
  if (const auto line = served_.line(peer, "served " + peer, clock_())) std::cout << *line << std::endl;
}

}  // namespace rdmacomm::programs
