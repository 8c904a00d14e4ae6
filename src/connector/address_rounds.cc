#include "connector/address_rounds.h"

#include <array>

#include "connector/lookup.h"

namespace rdmacomm {
namespace {

/// "4 s", "3.2 s", "250 ms": as precise as a reader needs.
std::string about(std::chrono::milliseconds duration) {
  using namespace std::chrono_literals;
  if (duration < 1s) return duration_text(duration);
  if (duration >= 10s) return duration_text(std::chrono::round<std::chrono::seconds>(duration));
  const auto tenths = (duration.count() + 50) / 100;
  return std::to_string(tenths / 10) + (tenths % 10 == 0 ? "" : "." + std::to_string(tenths % 10)) + " s";
}

}  // namespace

bool may_connect_later(std::error_code why) noexcept {
  constexpr std::array kPassing{std::errc::connection_refused,    std::errc::connection_reset,
                                std::errc::connection_aborted,    std::errc::timed_out,
                                std::errc::host_unreachable,      std::errc::network_unreachable,
                                std::errc::network_down,          std::errc::network_reset,
                                std::errc::address_not_available, std::errc::resource_unavailable_try_again};
  if (why == Errc::kTimeout) return true;
  return std::ranges::any_of(kPassing, [&](std::errc each) { return why == each; });
}

AddressRounds::AddressRounds(const HostPort& server, const TcpOptions& options, int cancel_fd)
    : AddressRounds(server, options, cancel_fd, [this, cancel_fd](const HostPort& where) {
        return resolve_within(where, pause_.deadline(), cancel_fd);
      }) {}

AddressRounds::AddressRounds(const HostPort& server, const TcpOptions& options, int cancel_fd, LookUp look_up)
    : server_(server),
      options_(options),
      look_up_(std::move(look_up)),
      pause_(Deadline::after(options.connect_timeout), cancel_fd) {}

Status AddressRounds::check() const {
  if (Status valid = options_.validate(); !valid) return valid;
  if (server_.port == 0) return make_error(Errc::kInvalidArgument, "the server's port is 0; it must be 1..65535");
  return {};
}

/// Once the lookup has succeeded, its answer is kept.
Status AddressRounds::look_up() {
  if (!addresses_.empty()) return {};
  auto found = look_up_(server_);
  if (!found) return found.status();
  addresses_ = std::move(*found);
  return {};
}

Error AddressRounds::note(const Error& why) {
  final_ = why.code == Errc::kStopped || why.code == std::errc::operation_not_permitted;
  if (may_connect_later(why.code)) again_ = true;
  const bool silence = why.code == Errc::kTimeout || why.code == std::errc::timed_out;
  const bool refused = why.code == std::errc::connection_refused;  // so the host is up
  const bool refused_before = last_error_ && last_error_->code == std::errc::connection_refused;
  if (!silence && (refused || !refused_before)) last_error_ = why;
  return why;
}

std::string AddressRounds::where() const {
  std::string text = server_.to_text();
  if (addresses_.empty() || text == addresses_.front().to_text()) return text;
  text += " (";
  for (const SocketAddress& address : addresses_) text += address.host() + ", ";
  return text.replace(text.size() - 2, 2, ")");
}

std::string AddressRounds::gave_up() const {
  const auto passed = Deadline::Clock::now() - begun_;
  return "gave up after " + about(std::chrono::round<std::chrono::milliseconds>(passed));
}

Error AddressRounds::stopped() const {
  return make_error(Errc::kStopped, "stopped while connecting to " + server_.to_text());
}

}  // namespace rdmacomm
