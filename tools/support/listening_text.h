// listening_text.h - the first line that a server prints.
#pragma once

#include <cstdint>
#include <string>

namespace rdmacomm::programs {

/// The address at which a server listens, and the clients that may connect: "listening on port 2020 at every address of
/// ...".
[[nodiscard]] std::string listening_text(const std::string& address, std::uint16_t port);

}  // namespace rdmacomm::programs
