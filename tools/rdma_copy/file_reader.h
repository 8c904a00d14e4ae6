// file_reader.h - reads one file and sends it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "rdma_copy/aligned_bytes.h"
#include "rdma_copy/answers.h"
#include "rdma_copy/block_search.h"
#include "rdma_copy/events.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/rate_limit.h"
#include "support/checksum.h"

namespace rdmacomm::copying {

/// For smaller files the sink is not asked for hashes, because sending them takes less time.
inline constexpr std::uint64_t kMinAsked = std::uint64_t{64} << 10;

/// Sends the content of a file: data, holes if it has some, and, if the sink has parts of it, references to these
/// blocks.
/// Threads: one at a time.
class FileReader {
 public:
  struct File {
    int fd = -1;
    std::uint32_t id = 0;
    std::uint64_t size = 0;
    bool sparse = false;  ///< it may have holes
    bool checksum = true;
  };
  FileReader(const File& file, FrameWriter& writer, RateLimit& limit, Answers& answers, const Events& events)
      : file_(file), writer_(writer), limit_(limit), answers_(answers), events_(events), checksum_(file.checksum) {}

  /// asks  the sink sends its hashes before anything is sent
  /// Returns  how the file has ended; or why the stream has ended
  [[nodiscard]] Result<FileEnd> send(bool asks);
  /// Why the file was given up; empty: it was not, or the sink knows the reason.
  [[nodiscard]] const std::string& failure() const noexcept { return failure_; }
  [[nodiscard]] std::uint64_t bytes_sent() const noexcept { return bytes_sent_; }

 private:
  [[nodiscard]] Status send_all();
  [[nodiscard]] Status send_data(std::uint64_t from, std::uint64_t to);
  [[nodiscard]] Status send_changes(std::uint64_t from, std::uint64_t to);
  [[nodiscard]] Status send_bytes(std::uint64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] Status add_same(const Same& same);
  [[nodiscard]] Status flush_same();
  [[nodiscard]] Status send_hole(std::uint64_t from, std::uint64_t to);
  /// Whether all of `to` was read.
  [[nodiscard]] bool read(std::uint64_t offset, std::span<std::byte> to);
  [[nodiscard]] Status wait_for_turn(std::uint64_t bytes);
  [[nodiscard]] bool over() const noexcept { return !failure_.empty() || answers_.has_failed(file_.id); }
  void moved(std::uint64_t bytes) const {
    if (events_.moved) events_.moved(bytes);
  }

  const File file_;
  FrameWriter& writer_;
  RateLimit& limit_;
  Answers& answers_;
  const Events& events_;
  programs::Checksum checksum_;
  Have have_;
  Same same_;  // sent when it ends
  std::optional<BlockSearch> search_;
  bool changed_ = false;
  std::uint64_t bytes_sent_ = 0;
  std::string failure_;
  AlignedBytes window_;
};

/// Adds a hole to a checksum.
void add_hole(programs::Checksum& checksum, std::uint64_t length) noexcept;

}  // namespace rdmacomm::copying
