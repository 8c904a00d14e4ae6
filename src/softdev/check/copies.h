// copies.h - memory of the checker, which the device fills instead of buffers of the program.
#pragma once

#include <infiniband/verbs.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <map>
#include <optional>
#include <vector>

namespace rdmacomm::softdev::check {

/// A block of registered memory that stands for the buffer of one request.
struct Copy {
  std::byte* address = nullptr;
  std::uint32_t lkey = 0;
  unsigned size_class = 0;  ///< it has 2^size_class bytes
  ibv_pd* pd = nullptr;
};

/// The device writes received data into such a block. The program gets the data when it polls the completion. So the
/// program's buffer changes at no other time, and each change before the completion is an error.
/// Threads: one at a time.
class Copies {
 public:
  /// A block of at least `length` bytes that the device may write in requests of this domain. Nothing if the process has
  /// more than 256 MiB of blocks, or memory cannot be registered: the request then uses the program's buffer.
  [[nodiscard]] std::optional<Copy> take(ibv_pd* pd, std::uint64_t length);
  void give_back(const Copy& copy);
  /// Ends the registrations in a domain, before the program ends it. Blocks in use stay.
  void release(ibv_pd* pd);

 private:
  static constexpr unsigned kSmallest = 6;  // 64 bytes
  static constexpr unsigned kLargest = 28;  // 256 MiB
  static constexpr std::uint64_t kMost = std::uint64_t{256} << 20;
  struct Slab {
    ibv_mr* mr;
    std::uint64_t bytes;
  };
  struct Domain {
    std::array<std::vector<Copy>, kLargest + 1> free;
    std::vector<Slab> slabs;
    std::uint64_t in_use = 0;
  };

  [[nodiscard]] bool grow(ibv_pd* pd, Domain& domain, unsigned size_class);

  std::map<ibv_pd*, Domain> domains_;
  std::uint64_t bytes_ = 0;
};

[[nodiscard]] Copies& copies();

}  // namespace rdmacomm::softdev::check
