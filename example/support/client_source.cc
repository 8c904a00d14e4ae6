#include "support/client_source.h"

#include "rdmacomm/connector/source_network.h"

namespace rdmacomm::programs {

std::string client_source(std::string_view peer) {
  return SourceNetwork::of(peer).to_text();
}

}  // namespace rdmacomm::programs
