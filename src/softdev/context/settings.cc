#include "softdev/context/settings.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <string_view>

#include "rdmacomm/softdev.h"

namespace rdmacomm::softdev {
namespace {

/// The value of a variable. Empty if it is not set, or if the program has more rights than its user.
std::string_view safe_value(const char* variable) noexcept {
  const char* const value = ::secure_getenv(variable);
  return value == nullptr ? "" : value;
}

/// Reads the value of kLateVariable. Returns false: invalid.
bool read_lateness(std::string_view text, std::chrono::milliseconds& lateness) noexcept {
  constexpr unsigned kMax = 60'000;
  if (text.empty()) return true;
  unsigned milliseconds = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), milliseconds);
  if (error != std::errc{} || end != text.data() + text.size() || milliseconds > kMax) return false;
  lateness = std::chrono::milliseconds(milliseconds);
  return true;
}

}  // namespace

int read_settings(Settings& settings) {
  if (!read_lateness(safe_value(kLateVariable), settings.lateness)) return EINVAL;
  if (!read_tcp_use(safe_value(kTcpVariable), settings.tcp_use)) return EINVAL;
  // Also read in a program that has more rights than its user, because it can only remove addresses.
  const char* const listen = std::getenv(kListenVariable);
  const bool is_listed = listen != nullptr && *listen != '\0';
  return !is_listed || TcpAddresses::read(listen, settings.addresses.emplace()) ? 0 : EINVAL;
}

}  // namespace rdmacomm::softdev
