#include "softdev/copier.h"

namespace rdmacomm::softdev {

/// The last piece is the last one either way: who looks for a mark near the end of a message finds it as late as ever.
void Copier::copy_long(std::byte* to, const std::byte* from, std::size_t count) noexcept {
  const std::size_t before_last = (count - 1) / kPieceBytes;  // pieces, all of them whole
  for (std::size_t i = 0; i < before_last; ++i) {
    const std::size_t at = (backwards_ ? before_last - 1 - i : i) * kPieceBytes;
    std::memcpy(to + at, from + at, kPieceBytes);
  }
  const std::size_t last = before_last * kPieceBytes;
  std::memcpy(to + last, from + last, count - last);
  backwards_ = !backwards_;
}

}  // namespace rdmacomm::softdev
