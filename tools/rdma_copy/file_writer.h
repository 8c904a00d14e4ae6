// file_writer.h - writes one file of a copy.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "rdma_copy/aligned_bytes.h"
#include "rdma_copy/frames.h"
#include "rdma_copy/messages.h"
#include "rdma_copy/new_file.h"
#include "rdmacomm/result.h"
#include "support/checksum.h"
#include "support/checksum_queue.h"

namespace rdmacomm::copying {

/// Writes one file that arrives in parts, in order, to a new file. At the end the new file replaces the old one.
/// Functions return a failure of this file; kBadMessage means that the source breaks the protocol.
/// Threads: one at a time. Lifetime: the directory stays open.
class FileWriter {
 public:
  struct Plan {
    int folder = -1;
    bool new_folder = false;  ///< no earlier copy can have left anything in it
    Entry entry = {};
    unsigned mode = 0644;  ///< of the new file
    bool times = false;    ///< also set the entry's time
    bool checksum = true;
    bool resume = false;   ///< keep the rest of an earlier copy
    bool at_once = false;  ///< the whole file is already here, so nothing will be left to resume
    bool sync = false;
  };
  /// queue  computes the checksum
  FileWriter(const Plan& plan, programs::ChecksumQueue& queue) : plan_(plan), checksum_(plan.checksum), queue_(queue) {}
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter() { drain(); }

  /// If the source asks, finds the parts that already exist; else starts from the beginning.
  [[nodiscard]] Status begin();
  /// Sends the answer to the source.
  [[nodiscard]] Status tell(FrameWriter& writer);
  /// keep  owns the bytes
  [[nodiscard]] Status write(std::uint64_t offset, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  [[nodiscard]] Status hole(const Extent& extent);
  [[nodiscard]] Status same(const Same& same);
  /// All parts have arrived: compares the checksum, and gives the file its name.
  [[nodiscard]] Status end(const FileEnd& end);
  /// Removes the new file.
  void discard() noexcept { file_.discard(); }

 private:
  [[nodiscard]] Status find_base();
  [[nodiscard]] Status create();
  [[nodiscard]] Status take(std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] Status keep(const Same& same);
  [[nodiscard]] Status copy_old(const Same& same);
  void reserve(std::uint64_t offset, std::uint64_t length);
  [[nodiscard]] Status write_all(std::uint64_t offset, std::span<const std::byte> bytes);
  [[nodiscard]] Status settle_old();
  [[nodiscard]] unsigned wanted_mode() const noexcept;
  [[nodiscard]] Status set_attributes(int fd, unsigned has_mode, unsigned mode);
  void drain();

  const Plan plan_;
  programs::Checksum checksum_;
  programs::ChecksumQueue& queue_;
  bool queued_ = false;  // some bytes of this file are in the queue
  Have have_;
  UniqueFd old_;               // if the base is kOld
  bool named_ = true;          // old_ is the file that has the name
  NewFile file_;               // with kOld: created at the first difference
  std::uint64_t at_ = 0;       // bytes that have arrived
  std::uint64_t written_ = 0;  // the new file has at least this length
  std::uint64_t reserved_ = 0;
  AlignedBytes buffer_;
};

}  // namespace rdmacomm::copying
