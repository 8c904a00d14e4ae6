#include "rdma_copy/file_writer.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/system_call.h"
#include "rdma_copy/block_hashes.h"
#include "rdma_copy/file_reader.h"

namespace rdmacomm::copying {
namespace {

constexpr unsigned kOwnerWrites = 0600;
// For fewer bytes, waking a thread takes longer than the checksum.
constexpr std::size_t kMinQueued = std::size_t{64} << 10;
// If this many bytes arrive at once, space for the next kReserved bytes is allocated before they are written.
constexpr std::size_t kMinReserved = std::size_t{256} << 10;
constexpr std::uint64_t kReserved = std::uint64_t{8} << 20;

Error failed(const char* what = "") {
  return make_error(last_system_error(), what);
}

/// Reads up to `to.size()` bytes; fewer only at the end of the file. Returns  the number of bytes; or the system's
/// error
Result<std::size_t> read_at(int fd, std::uint64_t offset, std::span<std::byte> to) {
  std::size_t got = 0;
  while (got < to.size()) {
    const ssize_t count = retry_interrupted(
        [&] { return ::pread(fd, to.data() + got, to.size() - got, static_cast<off_t>(offset + got)); });
    if (count < 0) return failed("the existing file cannot be read");
    if (count == 0) break;
    got += static_cast<std::size_t>(count);
  }
  return got;
}

/// The offset of the next data that is not a hole; UINT64_MAX: only a hole follows.
std::uint64_t data_behind(int fd, std::uint64_t offset) {
  const off_t data = ::lseek(fd, static_cast<off_t>(offset), SEEK_DATA);
  if (data >= 0) return static_cast<std::uint64_t>(data);
  return last_system_error() == std::errc::no_such_device_or_address ? UINT64_MAX : offset;
}

}  // namespace

Status FileWriter::begin() {
  if (plan_.entry.asks) {
    if (Status found = find_base(); !found.ok()) return found;
  }
  return have_.base == Have::Base::kNone ? create() : Status();
}

/// The rest of an earlier copy is preferred to an older file.
Status FileWriter::find_base() {
  have_.id = plan_.entry.id;
  const std::string& name = plan_.entry.name;
  struct stat is = {};
  if (plan_.resume) {
    auto left = NewFile::reopen(plan_.folder, name);
    if (!left && left.code() == std::errc::text_file_busy) return left.error();
    const int fd = !left ? -1 : left->file ? left->file.fd() : left->base.get();
    if (left && ::fstat(fd, &is) == 0 && is.st_size > 0) {
      have_.base = left->file ? Have::Base::kPartial : Have::Base::kOld;
      named_ = false;
      old_ = std::move(left->base);
      file_ = std::move(left->file);
      if (file_) (void)::ftruncate(file_.fd(), is.st_size);  // cuts off the space that was reserved after its data
    }
  }
  if (have_.base == Have::Base::kNone) {
    old_.reset(::openat(plan_.folder, name.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    if (!old_ || ::fstat(old_.get(), &is) != 0 || !S_ISREG(is.st_mode) || is.st_size == 0) return {};
    have_.base = Have::Base::kOld;
  }
  have_.size = static_cast<std::uint64_t>(is.st_size);
  if (have_.size > Have::kMaxSize) return make_error(std::make_error_code(std::errc::file_too_large), "");
  have_.block_bytes = hash_block_bytes(have_.size);
  return {};
}

Status FileWriter::create() {
  const unsigned mode = (plan_.mode & 0777) | kOwnerWrites;
  auto made = plan_.at_once ? NewFile::create_unnamed(plan_.folder, plan_.entry.name, mode, plan_.new_folder)
                            : NewFile::create(plan_.folder, plan_.entry.name, mode);
  if (!made) return made.error();
  file_ = std::move(*made);
  return {};
}

Status FileWriter::tell(FrameWriter& writer) {
  if (!plan_.entry.asks) return {};
  have_.id = plan_.entry.id;
  if (Status said = writer.put(FrameKind::kHave, have_.encode()); !said.ok()) return said;
  const int fd = have_.base == Have::Base::kOld ? old_.get() : file_.fd();
  buffer_.resize(std::max<std::size_t>(kDataBytes, have_.block_bytes));
  std::uint64_t data = 0;  // from `at` up to this offset is a hole
  const std::vector<std::byte> zeros(have_.block_bytes);
  const BlockSums zero_sums = sums_of(zeros);
  for (std::uint64_t at = 0; have_.base != Have::Base::kNone && at < have_.size; at += buffer_.size()) {
    const std::span want =
        std::span(buffer_).first(static_cast<std::size_t>(std::min<std::uint64_t>(buffer_.size(), have_.size - at)));
    if (data <= at) data = data_behind(fd, at);
    const bool hole = data >= at + want.size();
    if (!hole) {
      const auto got = read_at(fd, at, want);
      // Bytes that cannot be read, or are beyond the end of a file that has become shorter, count as zeroes.
      std::ranges::fill(want.subspan(got ? *got : 0), std::byte{});
    }
    Hashes hashes;
    for (std::size_t block = 0; block < want.size(); block += have_.block_bytes) {
      const std::size_t count = std::min<std::size_t>(have_.block_bytes, want.size() - block);
      hashes.blocks.push_back(!hole                   ? sums_of(want.subspan(block, count))
                              : count == zeros.size() ? zero_sums
                                                      : sums_of(std::span(zeros).first(count)));
    }
    if (Status said = writer.put(FrameKind::kHashes, hashes.encode()); !said.ok()) return said;
  }
  return writer.flush();
}

/// Parts must arrive in order, without gaps.
Status FileWriter::take(std::uint64_t offset, std::uint64_t length) {
  if (offset != at_ || length > plan_.entry.size - at_) {
    return make_error(Errc::kBadMessage, "the sending rdma_copy has sent " + std::to_string(length) +
                                             " bytes for offset " + std::to_string(offset) + " of a file of " +
                                             std::to_string(plan_.entry.size) + " bytes, of which " +
                                             std::to_string(at_) + " have arrived");
  }
  at_ += length;
  return {};
}

/// With an old file as the base, everything before `at_` is equal to it until the new file is created. Then that part
/// is copied.
Status FileWriter::write(std::uint64_t offset, std::span<const std::byte> bytes,
                         std::shared_ptr<const void> keep_bytes) {
  if (Status fits = take(offset, bytes.size()); !fits.ok()) return fits;
  if (!file_) {
    if (Status made = create(); !made.ok()) return made;
    if (Status kept = keep({.length = offset}); !kept.ok()) return kept;
  }
  if (plan_.checksum && bytes.size() >= kMinQueued) {
    queue_.add(checksum_, bytes, std::move(keep_bytes));
    queued_ = true;
  } else {
    drain();
    checksum_.update(bytes);
  }
  if (bytes.size() >= kMinReserved) reserve(offset, bytes.size());
  return write_all(offset, bytes);
}

/// The file system then allocates many blocks at once, not for each page: writing takes a third less time. If the space
/// cannot be reserved, the bytes are written without. The file's size still covers only the written bytes.
void FileWriter::reserve(std::uint64_t offset, std::uint64_t length) {
  if (have_.base != Have::Base::kNone || offset + length <= reserved_) return;
  const std::uint64_t from = std::max(offset, reserved_);
  const std::uint64_t until = std::min(plan_.entry.size, std::max(offset + length, from + kReserved));
  const bool done =
      ::fallocate(file_.fd(), FALLOC_FL_KEEP_SIZE, static_cast<off_t>(from), static_cast<off_t>(until - from)) == 0;
  reserved_ = done ? until : plan_.entry.size;
}

/// Call it before this thread uses the checksum.
void FileWriter::drain() {
  if (std::exchange(queued_, false)) queue_.drain();
}

Status FileWriter::hole(const Extent& extent) {
  if (Status fits = take(extent.offset, extent.length); !fits.ok()) return fits;
  if (!file_) {
    if (Status made = create(); !made.ok()) return made;
    if (Status kept = keep({.length = extent.offset}); !kept.ok()) return kept;
  }
  drain();
  add_hole(checksum_, extent.length);
  if (reserved_ > written_) {
    if (::ftruncate(file_.fd(), static_cast<off_t>(written_)) != 0) return failed();
    reserved_ = written_;
  }
  if (have_.base != Have::Base::kPartial || extent.offset >= have_.size) return {};  // nothing was written there
  const std::uint64_t length = std::min(extent.length, have_.size - extent.offset);
  if (::fallocate(file_.fd(), FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(extent.offset),
                  static_cast<off_t>(length)) == 0) {
    return {};
  }
  buffer_.assign(kDataBytes, std::byte{});
  for (std::uint64_t done = 0; done < length; done += kDataBytes) {
    const auto count = static_cast<std::size_t>(std::min<std::uint64_t>(kDataBytes, length - done));
    if (Status zeroed = write_all(extent.offset + done, std::span(buffer_).first(count)); !zeroed.ok()) return zeroed;
  }
  return {};
}

Status FileWriter::same(const Same& same) {
  if (Status fits = take(same.offset, same.length); !fits.ok()) return fits;
  const bool there = same.length <= have_.size && same.from <= have_.size - same.length;
  if (!there || (have_.base == Have::Base::kPartial && same.from != same.offset)) {
    return make_error(Errc::kBadMessage, "the sending rdma_copy refers to bytes that the existing file does not have");
  }
  if (!file_ && same.from == same.offset) return {};
  if (!file_) {
    if (Status made = create(); !made.ok()) return made;
    if (Status kept = keep({.length = same.offset}); !kept.ok()) return kept;
  }
  return keep(same);
}

/// Copies the bytes to the new file, and adds them to the checksum from there.
Status FileWriter::keep(const Same& same) {
  if (have_.base == Have::Base::kOld && same.length > 0) {
    if (Status copied = copy_old(same); !copied.ok()) return copied;
  }
  if (!plan_.checksum) return {};
  drain();
  buffer_.resize(kDataBytes);
  for (std::uint64_t done = 0; done < same.length;) {
    const auto want = static_cast<std::size_t>(std::min<std::uint64_t>(kDataBytes, same.length - done));
    const auto got = read_at(file_.fd(), same.offset + done, std::span(buffer_).first(want));
    if (!got) return got.error();
    if (*got < want)
      return make_error(std::make_error_code(std::errc::io_error), "the existing file has become shorter");
    checksum_.update(std::span(buffer_).first(want));
    done += want;
  }
  return {};
}

Status FileWriter::copy_old(const Same& same) {
  auto from = static_cast<off_t>(same.from);
  auto to = static_cast<off_t>(same.offset);
  const auto end = static_cast<off_t>(same.offset + same.length);
  while (to < end) {
    const ssize_t count = ::copy_file_range(old_.get(), &from, file_.fd(), &to, static_cast<std::size_t>(end - to), 0);
    if (count > 0 || (count < 0 && last_system_error() == std::errc::interrupted)) continue;
    // This file system cannot copy them, or the old file has become shorter. Copies through this process, which finds
    // out.
    buffer_.resize(kDataBytes);
    const auto want = static_cast<std::size_t>(std::min<off_t>(kDataBytes, end - to));
    const auto got = read_at(old_.get(), static_cast<std::uint64_t>(from), std::span(buffer_).first(want));
    if (!got) return got.error();
    if (*got < want)
      return make_error(std::make_error_code(std::errc::io_error), "the existing file has become shorter");
    if (Status written = write_all(static_cast<std::uint64_t>(to), std::span(buffer_).first(want)); !written.ok()) {
      return written;
    }
    from += static_cast<off_t>(want);
    to += static_cast<off_t>(want);
  }
  return {};
}

Status FileWriter::write_all(std::uint64_t offset, std::span<const std::byte> bytes) {
  while (!bytes.empty()) {
    const ssize_t count =
        retry_interrupted([&] { return ::pwrite(file_.fd(), bytes.data(), bytes.size(), static_cast<off_t>(offset)); });
    if (count < 0) return failed();
    bytes = bytes.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  written_ = std::max(written_, offset);
  return {};
}

Status FileWriter::end(const FileEnd& end) {
  if (end.state == FileEnd::State::kGivenUp) {
    discard();
    return {};
  }
  const bool unchanged = end.state == FileEnd::State::kUnchanged;
  if (at_ != plan_.entry.size || (unchanged && (file_ || have_.size != plan_.entry.size))) {
    return make_error(Errc::kBadMessage, "the sending rdma_copy has ended a file of " +
                                             std::to_string(plan_.entry.size) + " bytes, of which " +
                                             std::to_string(at_) + " have arrived");
  }
  drain();
  if (unchanged && named_) return settle_old();
  if (!file_) {  // equal to the start of the old file, or to all that an earlier copy left
    if (Status made = create(); !made.ok()) return made;
    if (Status kept = keep({.length = at_}); !kept.ok()) return kept;
  }
  if (plan_.checksum && end.checksum != checksum_.value()) {
    return make_error(std::make_error_code(std::errc::io_error),
                      "the written data is not the data that was read: the checksums differ");
  }
  // A file that another copy began may be longer; one that ends in a hole is shorter.
  const bool exact = have_.base == Have::Base::kNone && plan_.entry.size == written_;
  if (!exact && ::ftruncate(file_.fd(), static_cast<off_t>(plan_.entry.size)) != 0) return failed();
  if (Status set = set_attributes(file_.fd(), file_.mode(), wanted_mode()); !set.ok()) return set;
  if (plan_.sync && ::fsync(file_.fd()) != 0) return failed();
  if (Status named = file_.publish(); !named.ok()) return named;
  return plan_.sync && ::fsync(plan_.folder) != 0 ? Status(failed()) : Status();
}

/// The old file is equal and is kept. Only its mode and time are set if they are copied, too, and differ.
Status FileWriter::settle_old() {
  struct stat is = {};
  if (!plan_.times) return {};
  if (::fstat(old_.get(), &is) != 0) return failed();
  if ((is.st_mode & 07777) == plan_.mode && FileTime::modified(is) == plan_.entry.modified) return {};
  return set_attributes(old_.get(), is.st_mode & 07777, plan_.mode);
}

/// If modes are not copied, a directory's default ACL determines the mode of a new file, and no bits are added to that
/// mode.
unsigned FileWriter::wanted_mode() const noexcept {
  const bool as_made = !plan_.times && have_.base != Have::Base::kPartial;
  return as_made ? plan_.mode & file_.made_mode() : plan_.mode;
}

Status FileWriter::set_attributes(int fd, unsigned has_mode, unsigned mode) {
  if (has_mode != mode && ::fchmod(fd, mode) != 0) return failed("its mode cannot be set");
  if (!plan_.times) return {};
  return ::futimens(fd, plan_.entry.modified.for_utimens().data()) == 0 ? Status()
                                                                        : Status(failed("its time cannot be set"));
}

}  // namespace rdmacomm::copying
