#include "softdev/host/interface_names.h"

#include <net/if.h>

#include <algorithm>
#include <cstdlib>

#include "rdmacomm/softdev.h"
#include "softdev/host/soft_device.h"

namespace rdmacomm::softdev {
namespace {

/// Source: dev_valid_name() in net/core/dev.c of Linux. A comma separates two names here.
bool is_allowed(std::string_view name) noexcept {
  constexpr std::string_view kForbidden = "/:, \t\n\v\f\r";
  return name.size() < IFNAMSIZ && name != "." && name != ".." &&
         name.find_first_of(kForbidden) == std::string_view::npos;
}

}  // namespace

bool read_interface_names(std::string_view text, std::vector<std::string>& names) {
  std::vector<std::string> read;
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    const bool is_again = !name.empty() && std::ranges::find(read, name) != read.end();
    if (!is_allowed(name) || is_again || read.size() == DeviceIdentity::kMaxDevices) return false;
    read.emplace_back(name);
    text = comma == std::string_view::npos ? std::string_view() : text.substr(comma + 1);
  }
  names = std::move(read);
  return true;
}

std::vector<std::string> wanted_interfaces() {
  std::vector<std::string> names;
  const char* const value = ::secure_getenv(kInterfacesVariable);
  if (value != nullptr) (void)read_interface_names(value, names);
  return names;
}

}  // namespace rdmacomm::softdev
