// client_source.h - whose share of a server's places and memory a client uses.
#pragma once

#include <string>
#include <string_view>

namespace rdmacomm::programs {

/// SourceNetwork of a client, as a text.
[[nodiscard]] std::string client_source(std::string_view peer);

}  // namespace rdmacomm::programs
