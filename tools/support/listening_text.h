// listening_text.h - what a server says when it begins to listen.
#pragma once

#include <cstdint>
#include <string>

namespace rdmacomm::programs {

/// Where a server listens and who may connect, for its first line: "listening on port 2020 at every address of ...".
[[nodiscard]] std::string listening_text(const std::string& address, std::uint16_t port);

}  // namespace rdmacomm::programs
