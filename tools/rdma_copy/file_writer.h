// file_writer.h - one file, as its sink writes it.
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

/// Writes one file that comes in parts, in order, beside what is there under its name; then it takes that place.
/// Functions return the failure of this file, but kBadMessage: the source breaks the rules.
/// Threads: one. Lifetime: the directory stays open.
class FileWriter {
 public:
  struct Plan {
    int folder = -1;
    bool new_folder = false;  ///< no earlier copy has left anything in it
    Entry entry = {};
    unsigned mode = 0644;  ///< it shall have
    bool times = false;    ///< and the entry's time
    bool checksum = true;
    bool resume = false;   ///< what an earlier copy has left is kept
    bool at_once = false;  ///< all of it is there already: nothing will be left to resume
    bool sync = false;
  };
  /// queue  computes the checksum
  FileWriter(const Plan& plan, programs::ChecksumQueue& queue) : plan_(plan), checksum_(plan.checksum), queue_(queue) {}
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;
  ~FileWriter() { drain(); }

  /// Finds what there is of it already, where it is asked; else begins anew.
  [[nodiscard]] Status begin();
  /// Tells the source of it.
  [[nodiscard]] Status tell(FrameWriter& writer);
  /// keep  owns the bytes
  [[nodiscard]] Status write(std::uint64_t offset, std::span<const std::byte> bytes, std::shared_ptr<const void> keep);
  [[nodiscard]] Status hole(const Extent& extent);
  [[nodiscard]] Status same(const Same& same);
  /// All has come: it is compared with what was sent, and gets its name.
  [[nodiscard]] Status end(const FileEnd& end);
  /// Nothing is to be left of it.
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
  bool queued_ = false;  // something of this file
  Have have_;
  UniqueFd old_;               // where the base is kOld
  bool named_ = true;          // and that is the file that has the name
  NewFile file_;               // where it is kOld: from the first difference on
  std::uint64_t at_ = 0;       // so much has come
  std::uint64_t written_ = 0;  // the new file ends there, at least
  std::uint64_t reserved_ = 0;
  AlignedBytes buffer_;
};

}  // namespace rdmacomm::copying
