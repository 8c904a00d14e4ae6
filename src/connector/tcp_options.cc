#include "connector/socket.h"
#include "rdmacomm/connector.h"

namespace rdmacomm {
namespace {

Status check_range(const char* name, long long value, long long low, long long high, const char* unit) {
  if (value >= low && value <= high) return {};
  return make_error(Errc::kInvalidArgument, std::string(name) + " is " + std::to_string(value) + unit +
                                                "; it must be " + std::to_string(low) + ".." + std::to_string(high) +
                                                unit);
}

}  // namespace

std::string HostPort::to_text() const {
  return host_port_text(host, port);
}

Status TcpOptions::validate() const {
  constexpr long long kHour = 3'600'000;
  Status checked = check_range("connect_timeout", connect_timeout.count(), 1, kHour, " ms");
  if (checked) checked = check_range("handshake_timeout", handshake_timeout.count(), 1, kHour, " ms");
  if (checked) checked = check_range("dead_host_after", dead_host_after.count(), 1, 3600, " s");
  if (checked && priority) checked = check_range("priority", *priority, 0, 7, "");
  return checked;
}

}  // namespace rdmacomm
