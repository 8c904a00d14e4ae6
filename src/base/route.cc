#include "base/route.h"

#include "base/system_call.h"
#include "base/unique_fd.h"

namespace rdmacomm {

/// connect() on a datagram socket makes the kernel look up the route and choose the source address.
Result<sockaddr_storage> source_towards(const sockaddr* peer, socklen_t length) {
  const UniqueFd fd(socket(peer->sa_family, SOCK_DGRAM | SOCK_CLOEXEC, 0));
  sockaddr_storage source{};
  socklen_t room = sizeof(source);
  const bool found = fd && connect(fd.get(), peer, length) == 0 &&
                     getsockname(fd.get(), reinterpret_cast<sockaddr*>(&source), &room) == 0;
  if (!found) return make_error(last_system_error(), "");
  return source;
}

}  // namespace rdmacomm
