// lookup.h - finds the addresses of a host within a time limit. Private to the library.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "connector/socket.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// resolve(where) with a deadline: getaddrinfo(3) itself has none, and takes 10 s and more if no name server answers. A
/// name is looked up on a separate thread. If the deadline passes first, the thread is abandoned: it ends by itself,
/// and neither its caller nor the end of the process waits for it.
///
/// cancel_fd  becomes readable to give up; -1: none
/// Returns    as resolve(); std::errc::resource_unavailable_try_again: also if no answer came in time; kStopped
[[nodiscard]] Result<std::vector<SocketAddress>> resolve_within(const HostPort& where, Deadline deadline,
                                                                int cancel_fd = -1);

/// How long a listener tries to find the address of its host. A value.
/// After that  std::errc::resource_unavailable_try_again, as resolve_within()
struct FindBy {
  std::optional<Deadline> deadline{};  ///< empty: TcpOptions::connect_timeout from now
  int cancel_fd = -1;                  ///< becomes readable to give up; -1: none
};
[[nodiscard]] Result<std::vector<SocketAddress>> resolve_by(const HostPort& where, const TcpOptions& options,
                                                            const FindBy& find_by);

/// The same with another resolver. Because the resolver may still run after this returns, it must not use objects of
/// the caller.
using Resolver = std::function<Result<std::vector<SocketAddress>>(const HostPort&)>;
[[nodiscard]] Result<std::vector<SocketAddress>> look_up_within(const HostPort& where, Resolver resolver,
                                                                Deadline deadline, int cancel_fd);

}  // namespace rdmacomm
