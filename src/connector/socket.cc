#include "connector/socket.h"

#include <arpa/inet.h>
#include <fcntl.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/route.h"
#include "base/system_call.h"
#include "verbs/call.h"
#include "verbs/gid.h"

namespace rdmacomm {
namespace {

const sockaddr_in& as_v4(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in&>(storage);
}
const sockaddr_in6& as_v6(const sockaddr_storage& storage) {
  return reinterpret_cast<const sockaddr_in6&>(storage);
}

Status set_option(int fd, int level, int name, int value, const char* text) {
  const int set = setsockopt(fd, level, name, &value, sizeof(value));
  if (set == 0) return {};
  return verbs::from_minus_one(set, std::string("set ") + text + " to " + std::to_string(value) + " on a TCP socket");
}

Status set_marks(int fd, int family, const TcpOptions& options) {
  Status set;
  if (options.type_of_service) {
    const int value = *options.type_of_service;
    // An IPv6 socket that carries IPv4 also accepts the IPv4 option.
    if (family == AF_INET6) set = set_option(fd, IPPROTO_IPV6, IPV6_TCLASS, value, "IPV6_TCLASS");
    if (set) set = set_option(fd, IPPROTO_IP, IP_TOS, value, "IP_TOS");
  }
  // Set after the type of service, because the system derives a priority from that.
  if (set && options.priority) set = set_option(fd, SOL_SOCKET, SO_PRIORITY, *options.priority, "SO_PRIORITY");
  return set;
}

Status set_liveness(int fd, std::chrono::seconds dead_after) {
  // One probe a second after the first idle second. While data is unacknowledged, the user timeout counts instead.
  const int seconds = static_cast<int>(dead_after.count());
  Status set = set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1, "SO_KEEPALIVE");
  if (set) set = set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 1, "TCP_KEEPIDLE");
  if (set) set = set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 1, "TCP_KEEPINTVL");
  if (set) set = set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, std::clamp(seconds - 1, 1, 127), "TCP_KEEPCNT");
  if (set) set = set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, seconds * 1000, "TCP_USER_TIMEOUT");
  return set;
}

std::string without_brackets(const std::string& host) {
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') return host.substr(1, host.size() - 2);
  return host;
}

/// "%eth0" of a link-local address, which is ambiguous without it; "%7" if interface 7 does not exist any more.
std::string interface_text(const sockaddr_in6& address) {
  if (address.sin6_scope_id == 0) return {};
  char name[IF_NAMESIZE] = {};
  const bool known = if_indextoname(address.sin6_scope_id, name) != nullptr;
  return "%" + (known ? std::string(name) : std::to_string(address.sin6_scope_id));
}

bool lacks_interface(const addrinfo& found) {
  if (found.ai_family != AF_INET6) return false;
  const auto& address = *reinterpret_cast<const sockaddr_in6*>(found.ai_addr);
  return IN6_IS_ADDR_LINKLOCAL(&address.sin6_addr) && address.sin6_scope_id == 0;
}

Error cannot_resolve(const std::string& host, int code) {
  const std::error_code why = code == EAI_SYSTEM  ? last_system_error()
                              : code == EAI_AGAIN ? make_error_code(std::errc::resource_unavailable_try_again)
                                                  : make_error_code(Errc::kInvalidArgument);
  return make_error(
      why, "cannot find the address of host '" + host + "': " + gai_strerror(code) +
               "; check the spelling, or give an address" +
               (host.find('%') == std::string::npos ? "" : "; the part after the % must be an interface of this host"));
}

Error needs_interface(const std::string& host) {
  return make_error(Errc::kInvalidArgument,
                    "the address of host '" + host +
                        "' is link-local: append the local interface that reaches it, as in fe80::1%eth0");
}

}  // namespace

std::uint16_t SocketAddress::port() const noexcept {
  return ntohs(family() == AF_INET ? as_v4(storage).sin_port : as_v6(storage).sin6_port);
}

void SocketAddress::set_port(std::uint16_t port) noexcept {
  // sin_port and sin6_port have the same offset.
  reinterpret_cast<sockaddr_in*>(&storage)->sin_port = htons(port);
}

std::string SocketAddress::host() const {
  char text[INET6_ADDRSTRLEN] = {};
  if (family() == AF_INET) {
    inet_ntop(AF_INET, &as_v4(storage).sin_addr, text, sizeof(text));
  } else if (IN6_IS_ADDR_V4MAPPED(&as_v6(storage).sin6_addr)) {
    inet_ntop(AF_INET, as_v6(storage).sin6_addr.s6_addr + 12, text, sizeof(text));
  } else {
    inet_ntop(AF_INET6, &as_v6(storage).sin6_addr, text, sizeof(text));
    return text + interface_text(as_v6(storage));
  }
  return text;
}

std::string SocketAddress::to_text() const {
  return host_port_text(host(), port());
}

Gid SocketAddress::as_gid() const noexcept {
  return verbs::from_ibv(verbs::gid_of(*get()));
}

Result<SocketAddress> SocketAddress::of_local_end(int fd) {
  SocketAddress address;
  const Status got = verbs::from_minus_one(getsockname(fd, address.get(), &address.length), "read a socket's address");
  if (!got) return got.error();
  return address;
}

Result<SocketAddress> SocketAddress::of_peer(int fd) {
  SocketAddress address;
  const Status got = verbs::from_minus_one(getpeername(fd, address.get(), &address.length), "read a peer's address");
  if (!got) return got.error();
  return address;
}

Result<SocketAddress> SocketAddress::towards(const SocketAddress& peer) {
  const auto source = source_towards(peer.get(), peer.length);
  if (!source) return make_error(source.code(), "cannot find a route to " + peer.to_text());
  return SocketAddress{.storage = *source, .length = peer.length};
}

std::string host_port_text(std::string_view host, std::uint16_t port) {
  const bool brackets = host.find(':') != std::string_view::npos && !host.starts_with('[');
  const std::string text = brackets ? "[" + std::string(host) + "]" : std::string(host);
  return text + ":" + std::to_string(port);
}

std::string duration_text(std::chrono::milliseconds duration) {
  if (duration.count() % 1000 == 0) return std::to_string(duration.count() / 1000) + " s";
  return std::to_string(duration.count()) + " ms";
}

Result<std::vector<SocketAddress>> resolve(const HostPort& where) {
  const std::string host = without_brackets(where.host);
  if (host.empty()) return make_error(Errc::kInvalidArgument, "the host is empty; give a host name or an address");
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  // A host with a colon is an IPv6 address or invalid, so no name server is asked.
  hints.ai_flags = AI_NUMERICSERV | (host.find(':') != std::string::npos ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  const int code = getaddrinfo(host.c_str(), std::to_string(where.port).c_str(), &hints, &found);
  if (code == EAI_NONAME && (hints.ai_flags & AI_NUMERICHOST) != 0 && host.find('%') == std::string::npos) {
    return make_error(
        Errc::kInvalidArgument,
        "host '" + host + "' has a colon, but it is not an IPv6 address; give the port separately from the host");
  }
  if (code != 0) return cannot_resolve(host, code);
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* each = found; each != nullptr; each = each->ai_next) {
    if (lacks_interface(*each)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, each->ai_addr, each->ai_addrlen);
    address.length = each->ai_addrlen;
    addresses.push_back(address);
  }
  if (addresses.empty()) return needs_interface(host);
  return addresses;
}

SocketAddress any_address(int family, std::uint16_t port) {
  SocketAddress any;
  any.storage.ss_family = static_cast<sa_family_t>(family);
  any.length = family == AF_INET6 ? sizeof(sockaddr_in6) : sizeof(sockaddr_in);
  any.set_port(port);
  return any;
}

/// To ask the kernel, binds a datagram socket to any port of the address. This takes no port that another program
/// needs.
bool is_of_this_host(SocketAddress address) {
  const UniqueFd fd(socket(address.family(), SOCK_DGRAM | SOCK_CLOEXEC, 0));
  address.set_port(0);
  return fd && ::bind(fd.get(), address.get(), address.length) == 0;
}

Result<UniqueFd> open_socket(int family) {
  UniqueFd fd(socket(family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, IPPROTO_TCP));
  if (!fd) return verbs::from_minus_one(-1, "open a TCP socket").error();
  return fd;
}

Status mark_socket(int fd, const TcpOptions& options) {
  auto local = SocketAddress::of_local_end(fd);
  return local ? set_marks(fd, local->family(), options) : local.status();
}

Status set_up_socket(int fd, const TcpOptions& options) {
  Status set = set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1, "TCP_NODELAY");
  if (set) set = mark_socket(fd, options);
  if (set) set = set_liveness(fd, options.dead_host_after);
  return set;
}

Status set_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  return verbs::from_minus_one(fcntl(fd, F_SETFL, flags | O_NONBLOCK), "make a descriptor non-blocking");
}

Waited wait_for(int fd, short events, int cancel_fd, Deadline deadline) {
  pollfd waited[2] = {{fd, events, 0}, {cancel_fd, POLLIN, 0}};
  for (;;) {
    // poll(2) is not restarted after a signal: the remaining time has changed. An error (out of memory) counts as a
    // wake-up, and the caller checks its descriptor again.
    const int ready = ::poll(waited, 2, deadline.poll_timeout_ms());
    if (ready > 0) return waited[1].revents != 0 ? Waited::kCancelled : Waited::kReady;
    if (ready < 0 && last_system_error() != std::errc::interrupted) return Waited::kReady;
    if (deadline.passed()) return Waited::kTimeout;
  }
}

}  // namespace rdmacomm
