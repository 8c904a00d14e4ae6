// lookup.h - finding the addresses of a host within a time. Private to the library.
#pragma once

#include <functional>
#include <optional>
#include <vector>

#include "connector/socket.h"
#include "rdmacomm/connector.h"
#include "rdmacomm/deadline.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// resolve(where), for at most that long: getaddrinfo(3) itself knows no deadline, and takes 10 s and more if no
/// name server answers. A name is looked up on a thread, which this leaves behind if it takes too long: it ends by
/// itself, and keeps neither its caller nor the end of the process waiting.
///
/// cancel_fd  becomes readable to give up; -1: none
/// Returns    as resolve(); std::errc::resource_unavailable_try_again: also if no answer came in time; kStopped
[[nodiscard]] Result<std::vector<SocketAddress>> resolve_within(const HostPort& where, Deadline deadline,
                                                                int cancel_fd = -1);

/// How long a listener looks for the address of its host. A value.
/// After that  std::errc::resource_unavailable_try_again, as resolve_within()
struct FindBy {
  std::optional<Deadline> deadline{};  ///< empty: TcpOptions::connect_timeout from now
  int cancel_fd = -1;                  ///< becomes readable to give up; -1: none
};
[[nodiscard]] Result<std::vector<SocketAddress>> resolve_by(const HostPort& where, const TcpOptions& options,
                                                            const FindBy& find_by);

/// The same with another way to look a name up, which must need nothing that may be gone before it returns.
using Resolver = std::function<Result<std::vector<SocketAddress>>(const HostPort&)>;
[[nodiscard]] Result<std::vector<SocketAddress>> look_up_within(const HostPort& where, Resolver resolver,
                                                                Deadline deadline, int cancel_fd);

}  // namespace rdmacomm
