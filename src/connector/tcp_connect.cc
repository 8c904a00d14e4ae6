// TCPConnector::connect: all addresses of a host, again and again until somebody listens.
#include <poll.h>

#include <algorithm>

#include "connector/retry.h"
#include "connector/socket.h"
#include "connector/tcp_stream.h"
#include "rdmacomm/base/system_call.h"
#include "rdmacomm/connector/tcp_connector.h"
#include "rdmacomm/verbs/call.h"

namespace rdmacomm {
namespace {

/// What came of trying all addresses once.
struct Round {
  UniqueFd connected;
  bool refused = false;  ///< somebody was there and said no: worth another round
  std::error_code last_error;
};

class Attempt {
 public:
  Attempt(const HostPort& server, const TcpOptions& options, int cancel_fd)
      : server_(server),
        options_(options),
        cancel_fd_(cancel_fd),
        pause_(Deadline::after(options.connect_timeout), cancel_fd) {}

  Result<UniqueFd> run() {
    auto addresses = resolve(server_, false);
    if (!addresses) return addresses.error();
    for (;;) {
      auto round = try_all(*addresses);
      if (!round) return round.error();
      if (round->connected) return std::move(round->connected);
      if (!round->refused || pause_.passed()) return gave_up(*round, *addresses);
      if (!pause_.sleep()) return stopped();
    }
  }

 private:
  Result<Round> try_all(const std::vector<SocketAddress>& addresses) {
    Round round;
    auto left = static_cast<long>(addresses.size());
    for (const SocketAddress& address : addresses) {
      // An address that swallows packets leaves the others their share of the time.
      const Deadline share = Deadline::after(pause_.deadline().remaining() / left--);
      auto fd = try_one(address, share);
      if (fd) {
        round.connected = std::move(*fd);
        return round;
      }
      if (fd.code() == Errc::kStopped || fd.code() == std::errc::operation_not_permitted) return fd.error();
      round.refused = round.refused || fd.code() == std::errc::connection_refused;
      round.last_error = fd.code();
    }
    return round;
  }

  Result<UniqueFd> try_one(const SocketAddress& address, Deadline deadline) {
    auto fd = open_socket(address.family());
    if (!fd) return fd;
    const Status set = set_up_socket(fd->get(), options_);
    if (!set) return set.error();
    const int started = ::connect(fd->get(), address.get(), address.length);
    if (started != 0) {
      const std::error_code why = last_system_error();
      if (why != std::errc::operation_in_progress && why != std::errc::interrupted) return make_error(why, "");
      const Waited waited = wait_for(fd->get(), POLLOUT, cancel_fd_, deadline);
      if (waited == Waited::kCancelled) return stopped();
      if (waited == Waited::kTimeout) return make_error(Errc::kTimeout, "");
    }
    const std::error_code outcome = socket_error(fd->get());
    if (outcome) return make_error(outcome, "");
    if (connected_to_itself(fd->get())) return make_error(make_error_code(std::errc::connection_refused), "");
    return fd;
  }

  static std::error_code socket_error(int fd) {
    int number = 0;
    socklen_t length = sizeof(number);
    if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &number, &length) != 0) return last_system_error();
    return verbs::os_error(number);
  }

  /// Who keeps trying a port of this host that nobody listens at may be given that very port as its own, and TCP
  /// then connects the socket to itself.
  static bool connected_to_itself(int fd) {
    const auto local = SocketAddress::of_local_end(fd);
    const auto peer = SocketAddress::of_peer(fd);
    return local && peer && local->to_text() == peer->to_text();
  }

  Error stopped() const { return make_error(Errc::kStopped, "stopped while connecting to " + server_.to_text()); }

  Error gave_up(const Round& round, const std::vector<SocketAddress>& addresses) const {
    std::string where = server_.to_text();
    if (where != addresses.front().to_text()) {
      where += " (";
      for (const SocketAddress& address : addresses) where += address.host() + ", ";
      where.replace(where.size() - 2, 2, ")");
    }
    const std::string after = "gave up after " + duration_text(options_.connect_timeout);
    if (round.refused) {
      return make_error(make_error_code(std::errc::connection_refused), "nobody listens at " + where + "; " + after);
    }
    if (round.last_error == Errc::kTimeout || round.last_error == std::errc::timed_out) {
      return make_error(Errc::kTimeout, "no answer from " + where + "; " + after +
                                            "; is the host up, and does a firewall let the port pass?");
    }
    return make_error(round.last_error, "cannot connect to " + where);
  }

  const HostPort& server_;
  const TcpOptions& options_;
  const int cancel_fd_;
  RetryPause pause_;
};

}  // namespace

Result<std::unique_ptr<TCPConnector>> TCPConnector::connect(const HostPort& server, const TcpOptions& options,
                                                            int cancel_fd) {
  const Status valid = options.validate();
  if (!valid) return valid.error();
  if (server.port == 0) return make_error(Errc::kInvalidArgument, "the server's port is 0; it must be 1..65535");
  auto fd = Attempt(server, options, cancel_fd).run();
  if (!fd) return fd.error();
  return adopt(std::move(*fd), options);
}

Result<std::unique_ptr<TCPConnector>> TCPConnector::adopt(UniqueFd socket, const TcpOptions& options) {
  auto stream = TcpStream::adopt(std::move(socket), options);
  if (!stream) return stream.error();
  return std::unique_ptr<TCPConnector>(new TCPConnector(std::move(*stream)));
}

}  // namespace rdmacomm
