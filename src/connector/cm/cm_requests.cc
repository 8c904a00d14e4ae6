#include "connector/cm/cm_requests.h"

#include <sys/random.h>

#include "verbs/call.h"

namespace rdmacomm {

bool CmRequests::has_room(std::uint32_t qpn) {
  const std::lock_guard lock(mutex_);
  return !closed_ && waiting_.size() < kMax && !waiting_.contains(qpn);
}

void CmRequests::add(std::uint32_t qpn, std::unique_ptr<CmId> id) {
  const std::lock_guard lock(mutex_);
  if (!closed_) waiting_.emplace(qpn, std::move(id));
  arrived_.signal();
}

Result<std::unique_ptr<CmId>> CmRequests::take(std::uint32_t qpn, const CmWait& wait) {
  for (;;) {
    {
      const std::lock_guard lock(mutex_);
      arrived_.clear();
      if (closed_) return make_error(Errc::kStopped, "the connection was shut down locally");
      if (auto taken = waiting_.extract(qpn)) return std::move(taken.mapped());
    }
    if (Status slept = wait.sleep_on(arrived_.fd()); !slept) return slept.error();
  }
}

void CmRequests::close() {
  std::map<std::uint32_t, std::unique_ptr<CmId>> dropped;
  const std::lock_guard lock(mutex_);
  closed_ = true;
  dropped.swap(waiting_);
  arrived_.signal();
}

Result<std::pair<std::uint64_t, std::shared_ptr<CmRequests>>> CmRegistry::enter() {
  std::uint64_t token = 0;
  const auto got = getrandom(&token, sizeof(token), 0);
  if (Status status = verbs::from_minus_one(static_cast<int>(got), "get a random token"); !status)
    return status.error();
  auto arrived = WakeEvent::create();
  if (!arrived) return arrived.error();
  auto requests = std::make_shared<CmRequests>(std::move(*arrived));
  const std::lock_guard lock(mutex_);
  requests_[token] = requests;
  return std::pair(token, requests);
}

void CmRegistry::forget(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  requests_.erase(token);
}

std::shared_ptr<CmRequests> CmRegistry::find(std::uint64_t token) {
  const std::lock_guard lock(mutex_);
  const auto found = requests_.find(token);
  return found == requests_.end() ? nullptr : found->second;
}

}  // namespace rdmacomm
