#include "rdma_copy/seats.h"

namespace rdmacomm::copying {

Status Seats::look(const std::string& address) const {
  if (taken_ >= total_) {
    return make_error(Errc::kPeerRefused, "this server already makes " + std::to_string(total_) +
                                              " copies, which is its limit: try again later");
  }
  const auto of = of_.find(address);
  if (of == of_.end() || of->second < total_ / 2) return {};
  return make_error(Errc::kPeerRefused, "this server already makes " + std::to_string(of->second) + " copies for " +
                                            address + ", which is its limit for one address: try again later");
}

Status Seats::offer(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  return look(address);
}

Status Seats::take(const std::string& address) {
  const std::lock_guard lock(mutex_);
  if (Status free = look(address); !free.ok()) return free;
  ++taken_;
  ++of_[address];
  return {};
}

void Seats::give_back(const std::string& address) {
  const std::lock_guard lock(mutex_);
  --taken_;
  const auto of = of_.find(address);
  if (--of->second == 0) of_.erase(of);
}

}  // namespace rdmacomm::copying
