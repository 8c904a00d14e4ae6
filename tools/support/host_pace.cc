#include "support/host_pace.h"

#include <algorithm>
#include <utility>

namespace rdmacomm::programs {

/// Returns the host's entry; nullptr: no room. The oldest entry whose period is over is replaced, so that the first
/// kMaxHosts hosts do not keep the entries for ever. Its suppressed lines then count as lines of other hosts.
HostPace::Host* HostPace::own_line(const SourceNetwork& host, Clock::time_point now) {
  if (const auto found = by_host_.find(host); found != by_host_.end()) return &found->second;
  if (by_host_.size() >= kMaxHosts) {
    const auto oldest = std::ranges::min_element(by_host_, {}, [](const auto& each) { return each.second.since; });
    if (now - oldest->second.since < kPeriod) return nullptr;
    if (oldest->second.left_out > 0) {
      if (!others_) others_ = Host{.since = now};
      others_->left_out += oldest->second.left_out;
    }
    by_host_.erase(oldest);
  }
  return &by_host_.emplace(host, Host{.since = now}).first->second;
}

std::optional<std::string> HostPace::line(const std::string& peer, const std::string& text, Clock::time_point now) {
  Host* const own = own_line(SourceNetwork::of(peer), now);
  if (own == nullptr && !others_) others_ = Host{.since = now};
  Host& host = own != nullptr ? *own : *others_;
  if (now - host.since >= kPeriod) {
    host.since = now;
    host.told = 0;
  }
  if (host.told >= lines_) {
    ++host.left_out;
    return {};
  }
  ++host.told;
  const std::uint64_t left_out = std::exchange(host.left_out, 0);
  if (left_out == 0) return text;
  return text + "; " + std::to_string(left_out) + " more such lines " +
         (own != nullptr ? "about this host" : "about other hosts") + " were not printed";
}

std::string HostPace::left_out() const {
  std::string text;
  const auto append = [&text](std::uint64_t count, const std::string& whose) {
    if (count > 0) text += (text.empty() ? "" : ", ") + std::to_string(count) + " from " + whose;
  };
  for (const auto& [host, line] : by_host_) append(line.left_out, host.to_text());
  if (others_) append(others_->left_out, "other hosts");
  return text;
}

}  // namespace rdmacomm::programs
