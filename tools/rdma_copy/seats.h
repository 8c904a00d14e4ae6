// seats.h - limits the simultaneous copies of a server, in total and for each address.
#pragma once

#include <map>
#include <mutex>
#include <string>

#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// Clients of one address (as SourceNetwork defines it) get at most half of the seats, so that they cannot keep all
/// others out.
/// Threads: any.
/// Threads: any.
class Seats {
 public:
  /// total  2 or more
  explicit Seats(int total) : total_(total) {}

  /// Whether a client may have a seat. Returns  kPeerRefused: no seat is free; the context has the reason
  [[nodiscard]] Status offer(const std::string& address) const;
  /// Takes a seat for a client, until give_back(). Returns  as offer()
  [[nodiscard]] Status take(const std::string& address);
  void give_back(const std::string& address);

 private:
  [[nodiscard]] Status look(const std::string& address) const;

  const int total_;
  mutable std::mutex mutex_;
  int taken_ = 0;
  std::map<std::string, int> of_;  // taken seats, by address
};

}  // namespace rdmacomm::copying
