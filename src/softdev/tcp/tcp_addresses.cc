#include "softdev/tcp/tcp_addresses.h"

#include <arpa/inet.h>
#include <linux/filter.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>
#include <utility>

#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

// A socket filter sees a packet from its TCP header on; negative offsets reach the IP header.
constexpr auto kIp = static_cast<std::uint32_t>(SKF_NET_OFF);
constexpr std::uint32_t kIpv4Target = kIp + 16;
constexpr std::uint32_t kIpv6Target = kIp + 24;
constexpr std::uint32_t kWholePacket = UINT32_MAX;

constexpr sock_filter statement(std::uint16_t code, std::uint32_t value) {
  return {code, 0, 0, value};
}

/// Skips the next `skipped` instructions unless the accumulator equals `value`.
constexpr sock_filter unless_equal(std::uint32_t value, std::size_t skipped) {
  return {BPF_JMP | BPF_JEQ | BPF_K, 0, static_cast<std::uint8_t>(skipped), value};
}

std::uint32_t word_of(const ibv_gid& gid, std::size_t at) {
  std::uint32_t word = 0;
  std::memcpy(&word, gid.raw + at, sizeof(word));
  return ntohl(word);
}

/// Accepts packets to `address`; continues with the next instruction for others.
void append_test(std::vector<sock_filter>& program, const ibv_gid& address) {
  const bool is_ipv4 = verbs::is_mapped_ipv4(address);
  const std::size_t words = is_ipv4 ? 1 : 4;
  const std::size_t first = is_ipv4 ? 12 : 0;
  program.push_back(statement(BPF_LD | BPF_B | BPF_ABS, kIp));
  program.push_back(statement(BPF_ALU | BPF_RSH | BPF_K, 4));
  program.push_back(unless_equal(is_ipv4 ? 4 : 6, 2 * words + 1));
  for (std::size_t i = 0; i < words; ++i) {
    const auto at = static_cast<std::uint32_t>(4 * i);
    program.push_back(statement(BPF_LD | BPF_W | BPF_ABS, (is_ipv4 ? kIpv4Target : kIpv6Target) + at));
    program.push_back(unless_equal(word_of(address, first + at), 2 * (words - i) - 1));
  }
  program.push_back(statement(BPF_RET | BPF_K, kWholePacket));
}

bool read_address(const std::string& text, ibv_gid& address) {
  sockaddr_in ipv4{};
  ipv4.sin_family = AF_INET;
  sockaddr_in6 ipv6{};
  ipv6.sin6_family = AF_INET6;
  if (inet_pton(AF_INET, text.c_str(), &ipv4.sin_addr) == 1) {
    address = verbs::gid_of(reinterpret_cast<const sockaddr&>(ipv4));
  } else if (inet_pton(AF_INET6, text.c_str(), &ipv6.sin6_addr) == 1) {
    address = verbs::gid_of(reinterpret_cast<const sockaddr&>(ipv6));
  } else {
    return false;
  }
  return true;
}

}  // namespace

bool TcpAddresses::read(std::string_view text, TcpAddresses& addresses) {
  for (;;) {
    const std::size_t comma = text.find(',');
    ibv_gid address{};
    if (!read_address(std::string(text.substr(0, comma)), address)) return false;
    addresses.add(address);
    if (comma == std::string_view::npos) return true;
    text.remove_prefix(comma + 1);
  }
}

bool TcpAddresses::contains(const ibv_gid& address) const noexcept {
  return all_ || std::ranges::any_of(some_, [&](const ibv_gid& one) { return verbs::equal(one, address); });
}

bool TcpAddresses::add(const ibv_gid& address) {
  if (contains(address)) return false;
  some_.push_back(address);
  return true;
}

bool TcpAddresses::add_all() noexcept {
  return !std::exchange(all_, true);
}

bool TcpAddresses::add(const TcpAddresses& others) {
  if (others.all_) return add_all();
  bool is_more = false;
  for (const ibv_gid& address : others.some_) is_more = add(address) || is_more;
  return is_more;
}

int TcpAddresses::apply_to(int socket) const {
  if (all_) {
    const int nothing = 0;
    const int error = setsockopt(socket, SOL_SOCKET, SO_DETACH_FILTER, &nothing, sizeof(nothing)) == 0 ? 0 : errno;
    return error == ENOENT ? 0 : error;  // it had none
  }
  std::vector<sock_filter> program;
  for (const ibv_gid& address : some_) append_test(program, address);
  program.push_back(statement(BPF_RET | BPF_K, 0));
  const sock_fprog all{static_cast<unsigned short>(program.size()), program.data()};
  return setsockopt(socket, SOL_SOCKET, SO_ATTACH_FILTER, &all, sizeof(all)) == 0 ? 0 : errno;
}

}  // namespace rdmacomm::softdev
