#include "connector/lookup.h"

#include <arpa/inet.h>
#include <poll.h>

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "base/out_of_memory.h"
#include "base/start_thread.h"
#include "base/wake_event.h"

namespace rdmacomm {
namespace {

using Addresses = Result<std::vector<SocketAddress>>;

/// Shared by the thread and its caller; the last of them frees it.
struct Lookup {
  explicit Lookup(WakeEvent event) : done(std::move(event)) {}

  WakeEvent done;
  std::mutex mutex;
  std::optional<Addresses> answer;  // set before `done`
};

/// Whether the host needs no name server: it is an address, also with an interface or in brackets, or it is empty.
bool needs_no_lookup(const std::string& host) {
  if (host.empty() || host.find(':') != std::string::npos) return true;
  in_addr address{};
  return inet_pton(AF_INET, host.c_str(), &address) == 1;
}

}  // namespace

Addresses look_up_within(const HostPort& where, Resolver resolver, Deadline deadline, int cancel_fd) {
  auto done = WakeEvent::create();
  if (!done) return done.error();
  const auto lookup = std::make_shared<Lookup>(std::move(*done));
  std::thread thread;
  Status started = start_thread(thread, "rdma-lookup", [lookup, where, resolver = std::move(resolver)] {
    Addresses answer = or_out_of_memory([&] { return resolver(where); });
    {
      const std::lock_guard lock(lookup->mutex);
      lookup->answer = std::move(answer);
    }
    lookup->done.signal();
  });
  if (!started) return started.error();
  thread.detach();
  if (wait_for(lookup->done.fd(), POLLIN, cancel_fd, deadline) == Waited::kCancelled) {
    return make_error(Errc::kStopped, "stopped while looking for the address of host '" + where.host + "'");
  }
  const std::lock_guard lock(lookup->mutex);
  if (lookup->answer) return std::move(*lookup->answer);
  return make_error(std::make_error_code(std::errc::resource_unavailable_try_again),
                    "cannot find the address of host '" + where.host +
                        "': no name server has answered yet; give an address, or check /etc/resolv.conf");
}

Addresses resolve_within(const HostPort& where, Deadline deadline, int cancel_fd) {
  if (needs_no_lookup(where.host)) return resolve(where);
  return look_up_within(where, resolve, deadline, cancel_fd);
}

Addresses resolve_by(const HostPort& where, const TcpOptions& options, const FindBy& find_by) {
  return resolve_within(where, find_by.deadline.value_or(Deadline::after(options.connect_timeout)), find_by.cancel_fd);
}

}  // namespace rdmacomm
