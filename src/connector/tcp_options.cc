#include "base/check_range.h"
#include "connector/socket.h"
#include "rdmacomm/connector.h"

namespace rdmacomm {

std::string HostPort::to_text() const {
  return host_port_text(host, port);
}

Status TcpOptions::validate() const {
  constexpr std::int64_t kHour = 3'600'000;
  Status checked = check_range("connect_timeout", connect_timeout.count(), {.low = 1, .high = kHour, .unit = " ms"});
  if (checked)
    checked = check_range("handshake_timeout", handshake_timeout.count(), {.low = 1, .high = kHour, .unit = " ms"});
  if (checked)
    checked = check_range("dead_host_after", dead_host_after.count(), {.low = 1, .high = 3600, .unit = " s"});
  if (checked && priority) checked = check_range("priority", *priority, {.low = 0, .high = 7});
  return checked;
}

}  // namespace rdmacomm
