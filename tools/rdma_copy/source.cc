#include "rdma_copy/source.h"

#include <fcntl.h>
#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <system_error>

#include "base/system_call.h"
#include "rdma_copy/answers.h"
#include "rdma_copy/directory.h"
#include "rdma_copy/file_reader.h"
#include "rdma_copy/new_file.h"
#include "rdma_copy/rate_limit.h"

namespace rdmacomm::copying {
namespace {

constexpr int kReadFlags = O_RDONLY | O_NONBLOCK | O_NOCTTY | O_CLOEXEC;

const char* kind_text(mode_t mode) {
  if (S_ISFIFO(mode)) return "a FIFO";
  if (S_ISSOCK(mode)) return "a socket";
  if (S_ISDIR(mode)) return "a directory";
  if (S_ISLNK(mode)) return "a symbolic link";
  return S_ISREG(mode) ? "a file" : "a device";
}

/// Whether a file of size 0 has content, as files in /proc do. If the size is no longer 0, the file was empty before.
/// Returns  the system's error: it cannot be read
Result<bool> has_more_than_it_says(int fd) {
  char byte = 0;
  struct stat is = {};
  const ssize_t count = retry_interrupted([&] { return ::pread(fd, &byte, 1, 0); });
  if (count < 0) return make_error(last_system_error(), "");
  return count > 0 && ::fstat(fd, &is) == 0 && is.st_size == 0;
}

class Source {
 public:
  Source(RDMAStream& stream, const Place& place, const CopyOptions& options, const Events& events, Counts& counts,
         Work& work)
      : stream_(stream),
        place_(place),
        options_(options),
        events_(events),
        counts_(counts),
        work_(work),
        writer_(stream, &work),
        limit_(options.bytes_per_second),
        answers_(stream, events, work) {}

  Status run(const std::vector<std::string>& paths) {
    for (const std::string& path : paths) {
      if (Status sent = send_path(path); !sent.ok()) return sent;
    }
    if (Status sent = writer_.put(FrameKind::kEnd, {}); !sent.ok()) return sent;
    if (Status sent = writer_.flush(); !sent.ok()) return sent;
    const auto result = answers_.result();
    if (!result) return result.error();
    if (Status credible = check(*result); !credible.ok()) return credible;
    counts_ = {.files = result->files,
               .directories = result->directories,
               .links = result->links,
               .bytes = result->bytes,
               .bytes_sent = counts_.bytes_sent,
               .failures = counts_.failures + answers_.failures()};
    const Rest rest(&work_);
    return stream_.finish(Deadline::never());
  }

 private:
  /// Checks that the sink has written everything that was sent, except the entries that it has reported as failures.
  Status check(const Counts& result) const {
    const std::uint64_t failures = answers_.failures();
    const bool more = result.files > counts_.files || result.directories > counts_.directories ||
                      result.links > counts_.links || result.bytes > counts_.bytes;
    const bool all = result.files == counts_.files && result.directories == counts_.directories &&
                     result.links == counts_.links && result.bytes == counts_.bytes;
    if (!more && (all || failures > 0) && result.failures == counts_.failures + failures) return {};
    return make_error(Errc::kBadMessage, "the result of the receiving rdma_copy (" + std::to_string(result.files) +
                                             " files, " + std::to_string(result.bytes) + " bytes, " +
                                             std::to_string(result.failures) +
                                             " failures) differs from the sent data (" + std::to_string(counts_.files) +
                                             " files, " + std::to_string(counts_.bytes) + " bytes, " +
                                             std::to_string(counts_.failures + failures) + " failures)");
  }

  // Failures of one thing ---------------------------------------------------------------------------------------------

  Status fail(const std::string& path, const std::string& why) {
    ++counts_.failures;
    const std::string text = '"' + escaped(path) + "\": " + why;
    if (events_.failed) events_.failed(text);
    return writer_.put(FrameKind::kFailure, Failure{.text = text}.encode());
  }
  Status fail(const std::string& path, const char* what, std::error_code why) {
    return fail(path, what + (" (" + why.message() + ')'));
  }
  /// The sink may use that name for its own unfinished file.
  Status fail_partial(const std::string& path) {
    return fail(path, "has the name of an unfinished copy, and is not copied");
  }

  // Walking the tree --------------------------------------------------------------------------------------------------

  Status send_path(const std::string& path) {
    const auto spot = place_.find(path);
    if (!spot) return fail(path, "cannot be read: " + spot.error().message());
    // A named link is followed, unless links are copied as links. `place_` checks its target.
    const int links = options_.links_as_links() && !path.ends_with('/') ? O_NOFOLLOW : 0;
    const auto found = place_.open(path, O_PATH | links);
    if (!found) return fail(path, "cannot be read: " + found.error().message());
    struct stat is = {};
    if (::fstat(found->get(), &is) != 0) return fail(path, "cannot be read", last_system_error());
    if (S_ISLNK(is.st_mode)) return send_link(spot->folder.get(), spot->name, path);
    if (!S_ISDIR(is.st_mode) && !S_ISREG(is.st_mode))
      return fail(path, std::string("is ") + kind_text(is.st_mode) + ", and is not copied");
    if (is_partial_name(spot->name)) return fail_partial(path);
    if (S_ISDIR(is.st_mode) && !options_.recursive)
      return fail(path, "is a directory; --recursive (-r) copies directories");
    auto opened = place_.open(path, (S_ISDIR(is.st_mode) ? O_DIRECTORY : 0) | kReadFlags | links);
    if (!opened) return fail(path, "cannot be read: " + opened.error().message());
    return S_ISDIR(is.st_mode) ? send_directory(std::move(*opened), spot->name, path, 0)
                               : send_file(std::move(*opened), spot->name, path);
  }

  Status send_entry(int folder, const dirent& entry, const std::string& path, std::size_t depth) {
    if (is_partial_name(entry.d_name)) return fail_partial(path);
    unsigned char type = entry.d_type;
    struct stat is = {};
    if (type != DT_REG && type != DT_DIR && type != DT_LNK) {
      if (::fstatat(folder, entry.d_name, &is, AT_SYMLINK_NOFOLLOW) != 0) {
        return fail(path, "cannot be read", last_system_error());
      }
      if (!S_ISREG(is.st_mode) && !S_ISDIR(is.st_mode) && !S_ISLNK(is.st_mode)) {
        return fail(path, std::string("is ") + kind_text(is.st_mode) + ", and is not copied");
      }
      type = static_cast<unsigned char>(IFTODT(is.st_mode));
    }
    if (type == DT_LNK) return send_link(folder, entry.d_name, path);
    const int directory = type == DT_DIR ? O_DIRECTORY : 0;
    UniqueFd opened(::openat(folder, entry.d_name, kReadFlags | O_NOFOLLOW | directory));
    if (!opened) return fail(path, "cannot be read", last_system_error());
    return directory != 0 ? send_directory(std::move(opened), entry.d_name, path, depth + 1)
                          : send_file(std::move(opened), entry.d_name, path);
  }

  Entry entry_of(const struct stat& is, const std::string& name) {
    return {.id = ++last_id_, .mode = is.st_mode & 07777, .modified = FileTime::modified(is), .name = name};
  }

  void announce(const std::string& path, std::uint64_t size) const {
    if (events_.entry) events_.entry(path, size);
  }

  Status send_directory(UniqueFd opened, const std::string& name, const std::string& path, std::size_t depth) {
    struct stat is = {};
    if (::fstat(opened.get(), &is) != 0) return fail(path, "cannot be read", last_system_error());
    if (depth > kMaxDepth)
      return fail(path, "is nested too deeply: at most " + std::to_string(kMaxDepth) + " directories");
    auto directory = Directory::of(std::move(opened));
    if (!directory) return fail(path, "cannot be read", directory.code());
    announce(path, 0);
    ++counts_.directories;
    if (Status sent = writer_.put(FrameKind::kDirectory, entry_of(is, name).encode()); !sent.ok()) return sent;
    answers_.enter(last_id_);
    Status sent = send_entries(*directory, path, depth);
    answers_.exit();
    return sent.ok() ? writer_.put(FrameKind::kLeave, {}) : sent;
  }

  Status send_entries(Directory& directory, const std::string& path, std::size_t depth) {
    while (!answers_.has_failed()) {
      const auto entry = directory.next();
      if (!entry) return fail(path, "cannot be read any further", entry.code());
      if (*entry == nullptr) break;
      if (Status sent = send_entry(directory.fd(), **entry, joined(path, (*entry)->d_name), depth); !sent.ok()) {
        return sent;
      }
    }
    return {};
  }

  Status send_link(int folder, const std::string& name, const std::string& path) {
    if (!options_.links_as_links()) return fail(path, "is a symbolic link; -r and -a copy links");
    struct stat is = {};
    char target[PATH_MAX];
    const ssize_t length = ::readlinkat(folder, name.c_str(), target, sizeof(target));
    if (length < 0 || ::fstatat(folder, name.c_str(), &is, AT_SYMLINK_NOFOLLOW) != 0) {
      return fail(path, "cannot be read", last_system_error());
    }
    announce(path, 0);
    ++counts_.links;
    Entry entry = entry_of(is, name);
    entry.target.assign(target, static_cast<std::size_t>(length));
    return writer_.put(FrameKind::kLink, entry.encode());
  }

  /// The change of a file since it was announced, as far as its size and time show it. If the file was rewritten, the
  /// sent bytes are a mixture, and the file is given up. If it has only grown, they are its beginning. Empty: no
  /// change.
  static std::string what_changed(int fd, const Entry& announced, FileEnd& end) {
    struct stat is = {};
    if (::fstat(fd, &is) != 0) return {};
    if (static_cast<std::uint64_t>(is.st_size) > announced.size) {
      return "has grown while it was read: its first " + std::to_string(announced.size) + " bytes were copied";
    }
    if (FileTime::modified(is) == announced.modified) return {};
    end.state = FileEnd::State::kGivenUp;
    return "has changed while it was read, and is not copied";
  }

  // Files -------------------------------------------------------------------------------------------------------------

  Status send_file(UniqueFd file, const std::string& name, const std::string& path) {
    struct stat is = {};
    if (::fstat(file.get(), &is) != 0) return fail(path, "cannot be read", last_system_error());
    if (!S_ISREG(is.st_mode)) return fail(path, std::string("is ") + kind_text(is.st_mode) + " now, and is not copied");
    if (is.st_size == 0) {
      const auto more = has_more_than_it_says(file.get());
      if (!more) return fail(path, "cannot be read", more.code());
      if (*more) return fail(path, "has more bytes than its size says (like files in /proc), and is not copied");
    }
    Entry entry = entry_of(is, name);
    entry.size = static_cast<std::uint64_t>(is.st_size);
    entry.asks = options_.looks_at_old() && !options_.dry_run && entry.size >= kMinAsked;
    announce(path, entry.size);
    if (Status sent = writer_.put(FrameKind::kFile, entry.encode()); !sent.ok()) return sent;
    if (options_.dry_run) {
      ++counts_.files;
      counts_.bytes += entry.size;
      return {};
    }
    FileReader reader({.fd = file.get(),
                       .id = entry.id,
                       .size = entry.size,
                       .sparse = std::uint64_t{512} * static_cast<std::uint64_t>(is.st_blocks) < entry.size,
                       .checksum = options_.checksum},
                      writer_, limit_, answers_, events_);
    auto end = reader.send(entry.asks);
    counts_.bytes_sent += reader.bytes_sent();
    if (!end) return end.error();
    std::string failure = reader.failure();
    if (end->state != FileEnd::State::kGivenUp) failure = what_changed(file.get(), entry, *end);
    if (end->state != FileEnd::State::kGivenUp) {
      ++counts_.files;
      counts_.bytes += entry.size;
    }
    if (Status sent = writer_.put(FrameKind::kFileEnd, end->encode()); !sent.ok()) return sent;
    return failure.empty() ? Status() : fail(path, failure);
  }

  RDMAStream& stream_;
  const Place& place_;
  const CopyOptions& options_;
  const Events& events_;
  Counts& counts_;
  Work& work_;
  FrameWriter writer_;
  RateLimit limit_;
  std::uint32_t last_id_ = 0;
  Answers answers_;  // its thread uses the stream
};

}  // namespace

Status run_source(RDMAStream& stream, const Place& place, const std::vector<std::string>& paths,
                  const CopyOptions& options, const Events& events, Counts& counts, Work& work) {
  try {
    Source source(stream, place, options, events, counts, work);
    Status sent = source.run(paths);
    // The thread of `answers_` reads until the stream is aborted.
    if (!sent.ok()) stream.abort(sent.message());
    return sent;
  } catch (const std::system_error& error) {  // no more threads for this user
    Status failed = make_error(error.code(), "cannot start a thread that receives the answers of the peer");
    stream.abort(failed.message());
    return failed;
  }
}

}  // namespace rdmacomm::copying
