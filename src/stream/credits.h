// credits.h - the receives of the end that reads, which data segments take one by one. Private to the layer.
#pragma once

#include <cstdint>
#include <optional>

#include "stream/segment.h"

namespace rdmacomm {

/// Counts, since the stream began and modulo kCreditModulus, how many data segments have taken a receive of the end that reads,
/// and how many of these receives it has given back. Both ends have one for each direction; the credit that a segment carries is
/// given_back() of the end that reads. A value.
class Credits {
 public:
  /// How many receives are taken and not given back.
  [[nodiscard]] std::uint32_t in_use() const noexcept { return between(given_back_, taken_); }
  [[nodiscard]] std::uint32_t given_back() const noexcept { return given_back_; }
  void take() noexcept { taken_ = next(taken_); }
  void give_back() noexcept { given_back_ = next(given_back_); }
  /// The other end's given_back() has come: how many of them are news.
  [[nodiscard]] std::uint32_t news_in(std::uint32_t given_back) const noexcept {
    return between(given_back_, given_back);
  }
  /// Takes over the other end's count. Returns news_in(); nullopt: that is more than are in use, the other end is broken.
  [[nodiscard]] std::optional<std::uint32_t> give_back_until(std::uint32_t given_back) noexcept {
    const std::uint32_t news = news_in(given_back);
    if (news > in_use()) return {};
    given_back_ = given_back;
    return news;
  }

  /// Notes that given_back() was sent to the other end. Of the end that reads.
  void note_told() noexcept { told_ = given_back_; }
  /// How many were given back since.
  [[nodiscard]] std::uint32_t untold() const noexcept { return between(told_, given_back_); }
  /// How many are taken as the other end sees it.
  [[nodiscard]] std::uint32_t in_use_as_told() const noexcept { return between(told_, taken_); }

 private:
  [[nodiscard]] static std::uint32_t between(std::uint32_t first, std::uint32_t last) noexcept {
    return (last - first) % kCreditModulus;
  }
  [[nodiscard]] static std::uint32_t next(std::uint32_t count) noexcept { return (count + 1) % kCreditModulus; }

  std::uint32_t taken_ = 0;
  std::uint32_t given_back_ = 0;
  std::uint32_t told_ = 0;
};

}  // namespace rdmacomm
