// credits.h - counts the receives of the reading end, of which each data segment takes one. Private to the layer.
#pragma once

#include <cstdint>
#include <optional>

#include "stream/segment.h"

namespace rdmacomm {

/// Counts, for one direction of a stream, the data segments that have taken a receive of the reading end, and the
/// receives that it has given back. Both counts start with the stream and are modulo kCreditModulus. Each end has one
/// object for each direction. The credit in a segment is given_back() of its sender, for the data that it reads. A
/// value.
class Credits {
 public:
  /// Receives that are taken and not given back.
  [[nodiscard]] std::uint32_t in_use() const noexcept { return between(given_back_, taken_); }
  [[nodiscard]] std::uint32_t given_back() const noexcept { return given_back_; }
  void take() noexcept { taken_ = next(taken_); }
  void give_back() noexcept { given_back_ = next(given_back_); }
  /// The number of receives given back according to `given_back` of the peer that are not counted here yet.
  [[nodiscard]] std::uint32_t newly_given_back(std::uint32_t given_back) const noexcept {
    return between(given_back_, given_back);
  }
  /// Takes over the peer's count. Returns newly_given_back(); nullopt: it is more than in_use(), so the peer has broken
  /// the protocol.
  [[nodiscard]] std::optional<std::uint32_t> give_back_until(std::uint32_t given_back) noexcept {
    const std::uint32_t added = newly_given_back(given_back);
    if (added > in_use()) return {};
    given_back_ = given_back;
    return added;
  }

  /// Reading end: notes that given_back() was sent to the peer.
  void note_reported() noexcept { reported_ = given_back_; }
  /// Receives given back since the last note_reported().
  [[nodiscard]] std::uint32_t unreported() const noexcept { return between(reported_, given_back_); }
  /// Taken receives, as far as the peer knows.
  [[nodiscard]] std::uint32_t in_use_as_reported() const noexcept { return between(reported_, taken_); }

 private:
  [[nodiscard]] static std::uint32_t between(std::uint32_t first, std::uint32_t last) noexcept {
    return (last - first) % kCreditModulus;
  }
  [[nodiscard]] static std::uint32_t next(std::uint32_t count) noexcept { return (count + 1) % kCreditModulus; }

  std::uint32_t taken_ = 0;
  std::uint32_t given_back_ = 0;
  std::uint32_t reported_ = 0;
};

}  // namespace rdmacomm
