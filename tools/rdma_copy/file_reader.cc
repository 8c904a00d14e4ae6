#include "rdma_copy/file_reader.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <thread>

#include "base/system_call.h"

namespace rdmacomm::copying {
namespace {

/// While it waits for its turn: how often it checks whether the stream is still open.
constexpr std::chrono::milliseconds kLookAtStream{100};

}  // namespace

void add_hole(programs::Checksum& checksum, std::uint64_t length) noexcept {
  checksum.update(Extent{.offset = ~std::uint64_t{0}, .length = length}.encode());
}

Result<FileEnd> FileReader::send(bool asks) {
  if (asks) {
    if (Status sent = writer_.flush(); !sent.ok()) return sent.error();
    const auto have = answers_.have(file_.id);
    if (!have) return have.error();
    have_ = *have;
    changed_ = have_.size != file_.size;
    search_.emplace(have_, [this](std::uint64_t block) { return answers_.sums(block); });
  }
  Status sent = send_all();
  if (sent.ok()) sent = flush_same();
  if (!sent.ok()) return sent.error();
  if (over()) return FileEnd{.id = file_.id, .state = FileEnd::State::kGivenUp};
  const bool unchanged = have_.base == Have::Base::kOld && !changed_;
  return FileEnd{.id = file_.id,
                 .state = unchanged ? FileEnd::State::kUnchanged : FileEnd::State::kWhole,
                 .checksum = checksum_.value()};
}

/// Sends data and holes alternately.
Status FileReader::send_all() {
  for (std::uint64_t at = 0; at < file_.size && !over();) {
    std::uint64_t data = at;
    std::uint64_t end = file_.size;
    if (file_.sparse) {
      const auto found = ::lseek(file_.fd, static_cast<off_t>(at), SEEK_DATA);
      const bool none = found < 0 && last_system_error() == std::errc::no_such_device_or_address;
      data = none ? end : std::min(end, static_cast<std::uint64_t>(std::max<off_t>(found, static_cast<off_t>(at))));
      const auto hole = data < end ? ::lseek(file_.fd, static_cast<off_t>(data), SEEK_HOLE) : off_t{-1};
      if (hole > static_cast<off_t>(data)) end = std::min(end, static_cast<std::uint64_t>(hole));
    }
    if (data > at) {
      if (Status sent = send_hole(at, data); !sent.ok()) return sent;
    }
    Status sent = have_.base == Have::Base::kNone ? send_data(data, end) : send_changes(data, end);
    if (!sent.ok()) return sent;
    at = std::max(data, end);
  }
  return {};
}

/// Reads from the file directly into the block that is sent.
Status FileReader::send_data(std::uint64_t from, std::uint64_t to) {
  while (from < to && !over()) {
    const auto lent = writer_.lend_data(std::min(to - from, limit_.most()));
    if (!lent) return lent.error();
    if (!read(from, *lent)) return {};
    checksum_.update(*lent);
    if (Status sent = writer_.commit_data(from, lent->size()); !sent.ok()) return sent;
    changed_ = true;
    from += lent->size();
    bytes_sent_ += lent->size();
    moved(lent->size());
    if (Status waited = wait_for_turn(lent->size()); !waited.ok()) return waited;
  }
  return {};
}

/// Sends only the parts that the sink does not have. The window holds file bytes that were already searched, and the
/// next ones.
Status FileReader::send_changes(std::uint64_t from, std::uint64_t to) {
  // The sink chooses its block size. In a file smaller than a block, only the last block can match, which may be short.
  const std::size_t wanted = std::max(kDataBytes, 2 * search_->block_bytes());
  window_.resize(static_cast<std::size_t>(std::min<std::uint64_t>(wanted, file_.size)));
  std::size_t filled = 0;
  while (from < to && !over()) {
    const auto more = static_cast<std::size_t>(std::min<std::uint64_t>(window_.size() - filled, to - from - filled));
    if (!read(from + filled, std::span(window_).subspan(filled, more))) return {};
    filled += more;
    const bool last = from + filled == to;
    std::size_t done = 0;  // of the window
    std::size_t at = 0;    // no match before this position
    while (at < filled && (last || filled - at >= search_->block_bytes())) {
      const auto found = search_->next(from + at, std::span(window_).subspan(at, filled - at), last);
      if (!found) return found.error();
      at += found->at;
      if (found->length == 0) continue;
      if (Status sent = send_bytes(from + done, std::span(window_).subspan(done, at - done)); !sent.ok()) return sent;
      if (Status said = add_same({.offset = from + at, .length = found->length, .from = found->from}); !said.ok()) {
        return said;
      }
      done = at += found->length;
    }
    if (Status sent = send_bytes(from + done, std::span(window_).subspan(done, at - done)); !sent.ok()) return sent;
    checksum_.update(std::span(window_).first(at));
    moved(at);
    std::copy(window_.begin() + static_cast<std::ptrdiff_t>(at), window_.begin() + static_cast<std::ptrdiff_t>(filled),
              window_.begin());
    from += at;
    filled -= at;
  }
  return {};
}

Status FileReader::send_bytes(std::uint64_t offset, std::span<const std::byte> bytes) {
  if (bytes.empty()) return {};
  changed_ = true;
  if (Status said = flush_same(); !said.ok()) return said;
  while (!bytes.empty()) {
    const auto lent = writer_.lend_data(std::min<std::uint64_t>(bytes.size(), limit_.most()));
    if (!lent) return lent.error();
    const std::size_t count = lent->size();
    std::ranges::copy(bytes.first(count), lent->begin());
    if (Status sent = writer_.commit_data(offset, count); !sent.ok()) return sent;
    bytes_sent_ += count;
    bytes = bytes.subspan(count);
    offset += count;
    if (Status waited = wait_for_turn(count); !waited.ok()) return waited;
  }
  return {};
}

/// Joins this part to the previous one if it continues that one in both files.
Status FileReader::add_same(const Same& same) {
  changed_ = changed_ || same.from != same.offset;
  if (same_.length > 0 && same_.offset + same_.length == same.offset && same_.from + same_.length == same.from) {
    same_.length += same.length;
    return {};
  }
  if (Status said = flush_same(); !said.ok()) return said;
  same_ = same;
  return {};
}

Status FileReader::flush_same() {
  if (same_.length == 0 || over()) return {};
  const Same same = same_;
  same_ = {};
  // The sink does nothing with an old file until the first difference, because the whole file may be the same.
  return writer_.put(FrameKind::kSame, same.encode());
}

Status FileReader::send_hole(std::uint64_t from, std::uint64_t to) {
  if (Status said = flush_same(); !said.ok()) return said;
  changed_ = true;
  add_hole(checksum_, to - from);
  moved(to - from);
  return writer_.put(FrameKind::kHole, Extent{.offset = from, .length = to - from}.encode());
}

bool FileReader::read(std::uint64_t offset, std::span<std::byte> to) {
  while (!to.empty()) {
    const ssize_t count =
        retry_interrupted([&] { return ::pread(file_.fd, to.data(), to.size(), static_cast<off_t>(offset)); });
    if (count <= 0) {
      failure_ =
          count < 0 ? "cannot be read (" + last_system_error().message() + ')' : "has become shorter while it was read";
      return false;
    }
    to = to.subspan(static_cast<std::size_t>(count));
    offset += static_cast<std::uint64_t>(count);
  }
  return true;
}

/// Data that was already written is sent during the wait. A low rate causes waits of hours, and the stream may end long
/// before.
Status FileReader::wait_for_turn(std::uint64_t bytes) {
  if (!limit_.bounded()) return {};
  const auto turn = limit_.take(bytes, RateLimit::Clock::now());
  for (;;) {
    if (Status sent = writer_.flush(); !sent.ok()) return sent;
    const auto now = RateLimit::Clock::now();
    if (now >= turn) return {};
    std::this_thread::sleep_until(std::min(turn, now + kLookAtStream));
  }
}

}  // namespace rdmacomm::copying
