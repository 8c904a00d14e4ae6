// Looks up a server whose name may not be known yet.
#include "connector/address_rounds.h"
#include "connector/host_addresses.h"

namespace rdmacomm {

Result<std::vector<HostAddress>> find_server(const HostPort& server, Deadline deadline, int cancel_fd) {
  const TcpOptions options{.connect_timeout = time_left(deadline)};
  AddressRounds rounds(server, options, cancel_fd);
  const auto resolved = rounds.find();
  if (resolved) return as_host_addresses(*resolved);
  const Error& why = resolved.error();
  return may_connect_later(why.code) ? make_error(why.code, why.context + "; " + rounds.gave_up()) : why;
}

}  // namespace rdmacomm
