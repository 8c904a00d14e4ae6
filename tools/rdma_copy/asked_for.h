// asked_for.h - makes a sink accept only entries that were requested.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// Counts the top-level entries of a copy: one for each source, in the order of the sources. The client of a pull also
/// knows their names. So a server cannot send `.bashrc` instead of the requested file. A sink sends hashes of its files
/// only with the options that need them, because otherwise a server could find out the content of files on the client.
/// Threads: one at a time.
class AskedFor {
 public:
  /// For a push: the client chooses the names.
  /// sources  the number of entries that may be sent
  explicit AskedFor(std::uint32_t sources) : sources_(sources) {}
  /// For a pull.
  /// paths  the sources on the server, as the client has sent them
  explicit AskedFor(const std::vector<std::string>& paths);

  /// Checks an entry that arrives. Inside accepted directories, only its kind is checked.
  /// top      it is not in a directory that was accepted before
  /// Returns  kBadMessage: it was not requested: another name, one too many, a directory or a link without the option
  ///          for these, or a question for hashes without the option
  [[nodiscard]] Status take(FrameKind kind, const Entry& entry, bool top, const CopyOptions& options);
  /// The number of sources that have sent no entry. Each of them must have failed.
  [[nodiscard]] std::size_t missing() const noexcept { return sources_ - taken_; }

 private:
  std::size_t sources_;
  std::vector<std::string> names_;  // of the sources; empty: any name
  std::size_t next_ = 0;            // earlier sources have sent an entry, or have failed
  std::size_t taken_ = 0;
};

}  // namespace rdmacomm::copying
