// cm_requests.h - requests of rdma_cm that wait for their connector. Private to the connector layer.
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

/// The requests for queue pairs of one connector, by the requester's queue pair number.
/// Threads: any; take() one at a time.
class CmRequests {
 public:
  /// The most requests that may wait. A client connects one queue pair after the other, so more than one is unusual.
  static constexpr std::size_t kMax = 16;

  /// arrived: wakes take().
  explicit CmRequests(WakeEvent arrived) : arrived_(std::move(arrived)) {}
  CmRequests(const CmRequests&) = delete;
  CmRequests& operator=(const CmRequests&) = delete;

  /// Whether add() would keep it: fewer than kMax wait, and none with this number. Only for the thread that calls
  /// add().
  [[nodiscard]] bool has_room(std::uint32_t qpn);
  void add(std::uint32_t qpn, std::unique_ptr<CmId> id);
  /// Waits for the request with that number. Returns  kStopped: close() was called; as CmWait::sleep_on
  [[nodiscard]] Result<std::unique_ptr<CmId>> take(std::uint32_t qpn, const CmWait& wait);
  /// Ends all waits, now and later.
  void close();

 private:
  const WakeEvent arrived_;
  std::mutex mutex_;
  bool closed_ = false;
  std::map<std::uint32_t, std::unique_ptr<CmId>> waiting_;
};

/// Finds the connector of a request for a queue pair, by the token that the connector gave its peer. Threads: any.
class CmRegistry {
 public:
  /// Creates the request list of a new connector, under a new random token.
  [[nodiscard]] Result<std::pair<std::uint64_t, std::shared_ptr<CmRequests>>> enter();
  void forget(std::uint64_t token);
  /// nullptr: no connector has that token.
  [[nodiscard]] std::shared_ptr<CmRequests> find(std::uint64_t token);

 private:
  std::mutex mutex_;
  std::map<std::uint64_t, std::shared_ptr<CmRequests>> requests_;
};

}  // namespace rdmacomm
