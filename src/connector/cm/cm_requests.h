// cm_requests.h - requests of rdma_cm that wait for the connector they are meant for. Private to the connector layer.
#pragma once

#include <rdma/rdma_cma.h>

#include <cstdint>
#include <map>
#include <memory>
#include <mutex>

#include "base/wake_event.h"
#include "connector/cm/cm_id.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The requests for queue pairs of one connector, by the requester's queue pair number. Threads: any; take() one at a
/// time.
class CmRequests {
 public:
  /// That wait at once. A client connects one queue pair after the other, so more than one is a hurry of its own.
  static constexpr std::size_t kMax = 16;

  /// arrived: to wake take() by.
  explicit CmRequests(WakeEvent arrived) : arrived_(std::move(arrived)) {}
  CmRequests(const CmRequests&) = delete;
  CmRequests& operator=(const CmRequests&) = delete;

  /// Whether add() would keep it: not too many wait, and none of that number does. For the one thread that adds.
  [[nodiscard]] bool has_room(std::uint32_t qpn);
  void add(std::uint32_t qpn, std::unique_ptr<CmId> id);
  /// Waits for the request of that number. Returns  kStopped: close() was called; as CmWait::sleep_on
  [[nodiscard]] Result<std::unique_ptr<CmId>> take(std::uint32_t qpn, const CmWait& wait);
  /// Ends all waits, now and later.
  void close();

 private:
  const WakeEvent arrived_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::uint32_t, std::unique_ptr<CmId>> waiting_;
};

/// Which connector a request for a queue pair belongs to: by the token that its peer was given. Threads: any.
class CmRegistry {
 public:
  /// A new connector's requests, under a new random token.
  [[nodiscard]] Result<std::pair<std::uint64_t, std::shared_ptr<CmRequests>>> enter();
  void forget(std::uint64_t token);
  /// nullptr: nobody has that token.
  [[nodiscard]] std::shared_ptr<CmRequests> find(std::uint64_t token);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<CmRequests>> requests_;
};

}  // namespace rdmacomm
