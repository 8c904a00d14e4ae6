#include "connector/address_rounds.h"

namespace rdmacomm {

AddressRounds::AddressRounds(const HostPort& server, const TcpOptions& options, int cancel_fd)
    : server_(server), options_(options), pause_(Deadline::after(options.connect_timeout), cancel_fd) {}

Status AddressRounds::look_up() {
  if (Status valid = options_.validate(); !valid) return valid;
  if (server_.port == 0) return make_error(Errc::kInvalidArgument, "the server's port is 0; it must be 1..65535");
  auto found = resolve(server_, false);
  if (!found) return found.status();
  addresses_ = std::move(*found);
  return {};
}

std::string AddressRounds::where() const {
  std::string text = server_.to_text();
  if (addresses_.empty() || text == addresses_.front().to_text()) return text;
  text += " (";
  for (const SocketAddress& address : addresses_) text += address.host() + ", ";
  return text.replace(text.size() - 2, 2, ")");
}

std::string AddressRounds::gave_up() const {
  return "gave up after " + duration_text(options_.connect_timeout);
}

Error AddressRounds::stopped() const {
  return make_error(Errc::kStopped, "stopped while connecting to " + server_.to_text());
}

}  // namespace rdmacomm
