// client_source.h - whose share of a server's places and memory a client uses.
#pragma once

#include <string>
#include <string_view>

namespace rdmacomm::programs {

/// Of "10.0.0.2:41234", and of "[::ffff:10.0.0.2]:41234", "10.0.0.2"; of an IPv6 address its first 64 bits, because one host may
/// have all addresses that begin so; of a link-local one and of ::1 all of it. What is behind a blank is left out.
[[nodiscard]] std::string client_source(std::string_view peer);

}  // namespace rdmacomm::programs
