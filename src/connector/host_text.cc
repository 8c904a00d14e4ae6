#include "connector/host_text.h"

#include <arpa/inet.h>

#include <charconv>

#include "base/printable.h"
#include "rdmacomm/connector.h"

namespace rdmacomm {
namespace {

/// The number of bytes of a wrong text that messages show.
constexpr std::size_t kShownBytes = 100;

bool is_printable(std::string_view text) {
  while (!text.empty()) {
    const std::size_t length = printable_character(text);
    if (length == 0) return false;
    text.remove_prefix(length);
  }
  return true;
}

/// With or without an interface: fe80::1%eth0.
bool is_ipv6(std::string_view host) {
  in6_addr address{};
  return inet_pton(AF_INET6, std::string(host.substr(0, host.find('%'))).c_str(), &address) == 1;
}

Error wrong(const char* why) {
  return make_error(Errc::kInvalidArgument, why);
}

}  // namespace

Result<HostText> parse_host(std::string_view text) {
  // One colon separates host and port. Several colons are an IPv6 address, which needs brackets if it has a port.
  std::size_t colon = text.rfind(':');
  const bool bracketed = text.starts_with('[');
  const bool bare_ipv6 = !bracketed && colon != std::string_view::npos && text.find(':') != colon;
  if (bare_ipv6 || text.ends_with(']')) colon = std::string_view::npos;
  const std::string_view host = text.substr(0, colon);
  if (host.empty() || host == "[]") return wrong("the host is missing");
  if (host.starts_with('-')) return wrong("a host must not begin with '-'");
  if (host.find_first_of(" \t\r\n") != std::string_view::npos) return wrong("a host must not contain blanks");
  if (host.find(',') != std::string_view::npos) return wrong("a host must not contain commas");
  if (!is_printable(host)) return wrong("a host must not contain unprintable characters");
  if (host.find_first_not_of("0123456789") == std::string_view::npos) {
    return wrong("a host must not be only a number; write a port after its host, as HOST:PORT");
  }
  if (bracketed && !host.ends_with(']')) return wrong("a bracket is not closed");
  const std::string_view address = bracketed ? host.substr(1, host.size() - 2) : host;
  if ((bracketed || address.find(':') != std::string_view::npos) && !is_ipv6(address)) {
    return wrong("it has several colons or brackets, but it is not an IPv6 address; write HOST:PORT or [ADDRESS]:PORT");
  }
  if (colon == std::string_view::npos) return HostText{std::string(host), {}};
  const std::string_view digits = text.substr(colon + 1);
  std::uint16_t port = 0;
  const auto [end, failed] = std::from_chars(digits.data(), digits.data() + digits.size(), port);
  if (failed != std::errc() || end != digits.data() + digits.size() || port == 0) {
    return wrong("its port is not a number from 1 to 65535");
  }
  return HostText{std::string(host), port};
}

Result<HostPort> HostPort::parse(std::string_view text, std::uint16_t default_port) {
  auto parsed = parse_host(text);
  if (parsed) return HostPort{.host = std::move(parsed->host), .port = parsed->port.value_or(default_port)};
  return make_error(parsed.code(),
                    "'" + printable(text, kShownBytes) + "' is not HOST or HOST:PORT: " + parsed.error().context);
}

}  // namespace rdmacomm
