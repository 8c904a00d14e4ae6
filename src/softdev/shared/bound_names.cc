#include "softdev/shared/bound_names.h"

#include <linux/netlink.h>
#include <linux/rtnetlink.h>
#include <linux/sock_diag.h>
#include <linux/unix_diag.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <fstream>
#include <optional>
#include <sstream>
#include <string_view>

#include "base/unique_fd.h"

namespace rdmacomm::softdev {
namespace {

/// Requests all UNIX sockets, with their names and owners. Source: sock_diag(7).
bool ask_for_unix_sockets(int socket) noexcept {
  struct {
    nlmsghdr head;
    unix_diag_req what;
  } request{};
  request.head.nlmsg_len = sizeof(request);
  request.head.nlmsg_type = SOCK_DIAG_BY_FAMILY;
  request.head.nlmsg_flags = NLM_F_REQUEST | NLM_F_DUMP;
  request.what.sdiag_family = AF_UNIX;
  // A socket from accept(2) also shows its listener's name, but does not hold it.
  request.what.udiag_states = ~(1U << TCP_ESTABLISHED);
  request.what.udiag_show = UDIAG_SHOW_NAME | UDIAG_SHOW_UID;
  return ::send(socket, &request, sizeof(request), 0) == static_cast<ssize_t>(sizeof(request));
}

/// The abstract name of the socket that `message` describes. Empty: it has none, or `owners` excludes its user.
std::string_view name_in(nlmsghdr* message, NamesOf owners) noexcept {
  std::string_view name;
  bool counts = true;
  auto* attribute =
      reinterpret_cast<rtattr*>(static_cast<std::byte*>(NLMSG_DATA(message)) + NLMSG_ALIGN(sizeof(unix_diag_msg)));
  auto left = static_cast<int>(NLMSG_PAYLOAD(message, sizeof(unix_diag_msg)));
  for (; RTA_OK(attribute, left); attribute = RTA_NEXT(attribute, left)) {
    const auto* const data = static_cast<const char*>(RTA_DATA(attribute));
    const std::size_t bytes = RTA_PAYLOAD(attribute);
    if (attribute->rta_type == UNIX_DIAG_NAME && bytes > 0 && data[0] == '\0') name = {data + 1, bytes - 1};
    if (attribute->rta_type == UNIX_DIAG_UID && bytes == sizeof(std::uint32_t)) {
      std::uint32_t user = 0;
      std::memcpy(&user, data, sizeof(user));
      counts = owners == NamesOf::kAllUsers || user == geteuid();
    }
  }
  return counts ? name : std::string_view();
}

/// Returns no value if the kernel or a sandbox does not answer the request.
std::optional<std::vector<std::string>> names_by_netlink(const std::string& prefix, NamesOf owners) {
  const UniqueFd socket(::socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_SOCK_DIAG));
  if (!socket || !ask_for_unix_sockets(socket.get())) return {};
  std::vector<std::string> found;
  alignas(nlmsghdr) std::array<char, 32 * 1024> buffer{};
  for (;;) {
    const ssize_t got = recv(socket.get(), buffer.data(), buffer.size(), 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) return {};
    auto left = static_cast<unsigned>(got);
    auto* message = reinterpret_cast<nlmsghdr*>(buffer.data());
    for (; NLMSG_OK(message, left); message = NLMSG_NEXT(message, left)) {
      if (message->nlmsg_type == NLMSG_DONE) return found;
      if (message->nlmsg_type == NLMSG_ERROR) return {};
      const std::string_view name = name_in(message, owners);
      if (name.starts_with(prefix)) found.emplace_back(name.substr(prefix.size()));
    }
  }
}

/// For a line of /proc/net/unix: "Num: RefCount Protocol Flags Type St Inode Path". St is 03 for a connected socket.
bool is_connected(const std::string& line) {
  std::istringstream words(line);
  std::string word;
  for (int column = 0; column < 6; ++column) words >> word;
  return word == "03";
}

std::vector<std::string> names_of_all_users(const std::string& prefix) {
  const std::string wanted = "@" + prefix;  // proc(5): an abstract name begins with @
  std::vector<std::string> found;
  // Not /proc/net, which shows the network namespace of the main thread. Each thread may be in a different one.
  std::ifstream sockets("/proc/thread-self/net/unix");
  for (std::string line; std::getline(sockets, line);) {
    const std::size_t at = line.find(wanted);
    if (at != std::string::npos && !is_connected(line)) found.push_back(line.substr(at + wanted.size()));
  }
  return found;
}

}  // namespace

std::string digits_of(const ibv_gid& gid) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string digits;
  for (const std::uint8_t byte : gid.raw) {
    digits += kDigits[byte >> 4];
    digits += kDigits[byte & 0xf];
  }
  return digits;
}

std::vector<std::string> bound_names(const std::string& prefix, NamesOf owners) {
  auto found = names_by_netlink(prefix, owners);
  return found ? *std::move(found) : names_of_all_users(prefix);
}

}  // namespace rdmacomm::softdev
