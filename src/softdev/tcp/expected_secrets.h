// expected_secrets.h - the secrets of peers that connection management has told this process.
#pragma once

#include <infiniband/verbs.h>

#include <cstdint>
#include <optional>

#include "softdev/tcp/tcp_protocol.h"

namespace rdmacomm::softdev {

/// Queue pair `qpn` at `address` will show this secret. The queue pair of this process that connects to it next, within
/// a minute, accepts no other one. At most 1024 secrets are kept; then the oldest one goes.
/// Threads: any.
void expect_secret(const ibv_gid& address, std::uint32_t qpn, const TcpSecret& secret);
/// Returns  the secret, once; no value: any secret may come.
[[nodiscard]] std::optional<TcpSecret> take_expected_secret(const ibv_gid& address, std::uint32_t qpn);

}  // namespace rdmacomm::softdev
