// asked_for.h - which things a sink takes: no others than were asked for.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// Counts the entries that come at the top of what is copied, one for each source, in the order of the sources. The
/// client of a pull also knows their names, so that a server cannot send `.bashrc` instead of what the client wants. A
/// source hears hashes of what the sink has only with the options that are for it: else a server could find out what is
/// in the client's files.
/// Threads: one.
class AskedFor {
 public:
  /// Of a push: the client chooses the names.
  /// sources  how many entries may come
  explicit AskedFor(std::uint32_t sources) : sources_(sources) {}
  /// Of a pull.
  /// paths  the sources on the server, as the client has sent them
  explicit AskedFor(const std::vector<std::string>& paths);

  /// An entry comes. Inside of directories that were taken only its kind is checked.
  /// top      it is not in a directory that was taken before
  /// Returns  kBadMessage: it was not asked for: another name, one too many, a directory or a link without the option
  ///          for these, or hashes are asked for without
  [[nodiscard]] Status take(FrameKind kind, const Entry& entry, bool top, const CopyOptions& options);
  /// How many sources have sent no entry. Each of them must have failed.
  [[nodiscard]] std::size_t missing() const noexcept { return sources_ - taken_; }

 private:
  std::size_t sources_;
  std::vector<std::string> names_;  // of the sources; none: any
  std::size_t next_ = 0;            // sources before this one have sent something, or have failed
  std::size_t taken_ = 0;
};

}  // namespace rdmacomm::copying
