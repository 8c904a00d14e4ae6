#include "base/check_range.h"
#include "rdmacomm/session.h"

namespace rdmacomm {

Status SessionOptions::validate() const {
  constexpr std::int64_t kHourMs = 3'600'000;
  Status checked = tcp.validate();
  if (checked) checked = device.validate();
  if (checked) checked = check_range("handshake_slots", handshake_slots, {.low = 1, .high = 1024});
  if (checked) checked = check_range("handshakes_per_source", handshakes_per_source, {.low = 1, .high = 1024});
  if (checked) checked = check_range("waiting_handshakes", waiting_handshakes, {.low = 1, .high = 4096});
  if (checked) {
    checked = check_range("handshake_patience", handshake_patience.count(), {.low = 1, .high = kHourMs, .unit = " ms"});
  }
  if (checked) checked = check_range("max_endpoints_per_source", max_endpoints_per_source, {.low = 1, .high = 65536});
  if (checked) checked = check_range("max_endpoints", max_endpoints, {.low = 1, .high = 65536});
  if (!checked || silent_peer_after.count() == 0) return checked;
  checked = check_range("silent_peer_after", silent_peer_after.count(), {.low = 3000, .high = kHourMs, .unit = " ms"});
  return checked ? checked : make_error(checked.code(), checked.error().context + ", or 0 to wait for ever");
}

}  // namespace rdmacomm
