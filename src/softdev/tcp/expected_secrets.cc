#include "softdev/tcp/expected_secrets.h"

#include <algorithm>
#include <chrono>
#include <deque>
#include <mutex>

#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMost = 1024;
constexpr std::chrono::minutes kTime{1};

struct Expected {
  ibv_gid address;
  std::uint32_t qpn;
  TcpSecret secret;
  Clock::time_point since;
};

std::mutex mutex;
std::deque<Expected>& all() {
  static auto* const only = new std::deque<Expected>;  // threads may use it until the process ends
  return *only;
}

auto is_of(const ibv_gid& address, std::uint32_t qpn) {
  return [address, qpn](const Expected& one) { return one.qpn == qpn && verbs::equal(one.address, address); };
}

}  // namespace

void expect_secret(const ibv_gid& address, std::uint32_t qpn, const TcpSecret& secret) {
  const std::scoped_lock lock(mutex);
  const Clock::time_point now = Clock::now();
  std::erase_if(all(), is_of(address, qpn));
  while (!all().empty() && (all().size() >= kMost || now - all().front().since > kTime)) all().pop_front();
  all().push_back({address, qpn, secret, now});
}

std::optional<TcpSecret> take_expected_secret(const ibv_gid& address, std::uint32_t qpn) {
  const std::scoped_lock lock(mutex);
  const auto found = std::ranges::find_if(all(), is_of(address, qpn));
  if (found == all().end()) return std::nullopt;
  const Expected expected = *found;
  all().erase(found);
  return Clock::now() - expected.since > kTime ? std::nullopt : std::optional(expected.secret);
}

}  // namespace rdmacomm::softdev
