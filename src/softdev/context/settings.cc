#include "softdev/context/settings.h"

#include <cerrno>
#include <charconv>
#include <cstdlib>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/printable.h"
#include "rdmacomm/softdev.h"
#include "softdev/host/interface_names.h"

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

/// A variable with an invalid value, and the values that it may have.
struct InvalidVariable {
  const char* variable;
  std::string_view value;
  const char* possible;
};

/// Reads all variables. Returns the first one whose value is invalid.
std::optional<InvalidVariable> read_all(Settings& settings) {
  const std::string_view late = safe_value(kLateVariable);
  if (!read_lateness(late, settings.lateness)) {
    return InvalidVariable{kLateVariable, late, "a number of milliseconds, at most 60000"};
  }
  const std::string_view wire = safe_value(kTcpVariable);
  if (!read_tcp_use(wire, settings.tcp_use)) return InvalidVariable{kTcpVariable, wire, "auto, tcp or memory"};
  const std::string_view memlock = safe_value(kMemlockVariable);
  settings.limits_memory = memlock != "off";
  if (settings.limits_memory && !memlock.empty() && memlock != "on") {
    return InvalidVariable{kMemlockVariable, memlock, "on or off"};
  }
  const std::string_view interfaces = safe_value(kInterfacesVariable);
  if (std::vector<std::string> names; !read_interface_names(interfaces, names)) {
    return InvalidVariable{kInterfacesVariable, interfaces,
                           "names of at most 64 network interfaces, separated by commas, each once"};
  }
  // Also read in a program that has more rights than its user, because it can only remove addresses.
  const char* const listen = std::getenv(kListenVariable);
  const bool is_listed = listen != nullptr && *listen != '\0';
  if (!is_listed || TcpAddresses::read(listen, settings.addresses.emplace())) return std::nullopt;
  return InvalidVariable{kListenVariable, listen, "IPv4 and IPv6 addresses, separated by commas"};
}

}  // namespace

int read_settings(Settings& settings) {
  return read_all(settings) ? EINVAL : current_fault_run(settings.faults);
}

std::string invalid_setting() {
  constexpr std::size_t kShown = 64;
  Settings settings;
  const auto invalid = read_all(settings);
  if (!invalid) {
    const std::string reason = invalid_fault_variable();
    return reason.empty() ? "" : std::string("the environment variable ") + kFaultsVariable + " has no plan: " + reason;
  }
  return std::string("the environment variable ") + invalid->variable + " is \"" + printable(invalid->value, kShown) +
         "\"; it may be " + invalid->possible + ", or not set";
}

}  // namespace rdmacomm::softdev
