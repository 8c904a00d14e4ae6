#include "rdma_copy/sink.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <memory>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "base/system_call.h"
#include "rdma_copy/asked_for.h"
#include "rdma_copy/crew.h"
#include "rdma_copy/file_writer.h"
#include "rdma_copy/new_file.h"
#include "rdma_copy/target_folder.h"

namespace rdmacomm::copying {
namespace {

// Files up to this size arrive in one piece, and the crew writes them.
constexpr std::uint64_t kMaxSmall = 32 << 10;
// More threads do not write to one directory faster.
constexpr unsigned kMaxMembers = 4;

/// Whether nothing else can be written after this error either.
bool ends_all(std::error_code why) {
  return why == std::errc::no_space_on_device || why == std::errc::read_only_file_system ||
         why == std::error_code(EDQUOT, std::generic_category());
}

class Sink {
 public:
  Sink(RDMAStream& stream, FrameReader& reader, const CopyOptions& options, const Events& events, Counts& counts,
       const Destination& destination, Work& work)
      : stream_(stream),
        options_(options),
        events_(events),
        counts_(counts),
        mask_(destination.mask),
        asked_for_(destination.names.empty() ? AskedFor(destination.sources) : AskedFor(destination.names)),
        reader_(reader),
        work_(work),
        writer_(stream, &work) {}

  Status open(const Place& place, const Destination& destination) {
    auto spot = open_destination(place, destination, options_);
    if (!spot) return spot.error();
    new_name_ = std::move(spot->name);
    folders_.push_back(std::make_shared<TargetFolder>(destination.path, std::move(spot->folder), spot->is_absent));
    return {};
  }

  Status run() {
    for (;;) {
      auto frame = reader_.next(Deadline::never());
      if (Status good = broken(); !good.ok()) return good;
      if (!frame) return frame.error();
      if (!*frame) return make_error(Errc::kBadMessage, "the sending rdma_copy has ended the copy too early");
      if ((*frame)->kind == FrameKind::kEnd) {
        frame->reset();  // releases its block: the source waits until all blocks are released
        return finish();
      }
      if (Status taken = take(**frame); !taken.ok()) return taken;
    }
  }

 private:
  /// A file whose content has arrived together with its entry.
  struct SmallFile {
    std::shared_ptr<TargetFolder> folder;
    FileWriter::Plan plan;
    std::string path;
    std::span<const std::byte> bytes = {};
    std::shared_ptr<const void> keep = nullptr;  // owns the bytes
    FileEnd end = {};
  };

  Status take(const Frame& frame) {
    switch (frame.kind) {
      case FrameKind::kDirectory:
      case FrameKind::kFile:
      case FrameKind::kLink: return take_entry(frame);
      case FrameKind::kData:
      case FrameKind::kHole:
      case FrameKind::kSame:
      case FrameKind::kFileEnd: return take_part(frame);
      case FrameKind::kLeave: return end_directory();
      case FrameKind::kFailure: {
        const auto failure = Failure::decode(frame.payload);
        if (!failure) return failure.error();
        const std::lock_guard lock(mutex_);
        ++counts_.failures;
        if (events_.failed) events_.failed(failure->text);
        return {};
      }
      default:
        return make_error(Errc::kBadMessage, "the sending rdma_copy has sent a frame of kind " +
                                                 std::to_string(static_cast<int>(frame.kind)) +
                                                 ", which it may not send");
    }
  }

  /// An entry cannot be written. Returns  ok, or why the copy cannot continue
  Status fail(std::uint32_t id, const std::string& path, const Error& why) {
    if (why.code == Errc::kBadMessage) return why;
    const std::string text = '"' + escaped(path) + "\": cannot be written: " + why.message();
    if (ends_all(why.code)) return make_error(why.code, '"' + escaped(path) + "\": cannot be written");
    {
      const std::lock_guard lock(mutex_);
      ++counts_.failures;
      if (events_.failed) events_.failed(text);
    }
    const auto lock = turn_to_say();
    if (Status said = writer_.put(FrameKind::kFailure, Failure{.id = id, .text = text}.encode()); !said.ok())
      return said;
    return writer_.flush();
  }
  Status fail(std::uint32_t id, const std::string& path) { return fail(id, path, make_error(last_system_error(), "")); }

  /// The holder may wait for the peer.
  std::unique_lock<std::mutex> turn_to_say() {
    const Rest rest(&work_);
    return std::unique_lock(saying_);
  }

  /// Waits for the crew. Its threads work, or wait for the peer.
  void drain_crew() {
    const Rest rest(&work_);
    crew_.drain();
  }

  /// Why the crew cannot continue.
  Status broken() {
    const std::lock_guard lock(mutex_);
    return broken_;
  }
  /// For the crew. If the peer sends nothing, run() would not notice the error, so this aborts the stream.
  void note(const Status& outcome) {
    if (outcome.ok()) return;
    {
      const std::lock_guard lock(mutex_);
      if (broken_.ok()) broken_ = outcome;
    }
    stream_.abort(outcome.message());
  }

  // Entries -----------------------------------------------------------------------------------------------------------

  Status take_entry(const Frame& frame) {
    auto entry = Entry::decode(frame.payload);
    if (!entry) return entry.error();
    if (writing_)
      return make_error(Errc::kBadMessage,
                        "the sending rdma_copy has begun a file before the end of the file before it");
    const bool top = folders_.size() == 1;
    const bool itself = entry->name.empty() && top && frame.kind == FrameKind::kDirectory;
    if (entry->name.empty() && !itself)
      return make_error(Errc::kBadMessage, "the sending rdma_copy has sent an empty name");
    if (Status asked = asked_for_.take(frame.kind, *entry, top, options_); !asked.ok()) return asked;
    id_ = entry->id;
    if (top && !new_name_.empty()) entry->name = new_name_;
    if (is_partial_name(entry->name))
      return make_error(Errc::kBadMessage, "the sending rdma_copy has sent a file with the name of an unfinished copy");
    path_ = joined(folders_.back()->path(), new_name_.empty() || folders_.size() > 1 ? entry->name : "");
    if (events_.entry) events_.entry(path_, entry->size);
    const bool left_out = folders_.back()->left_out();
    if (frame.kind == FrameKind::kDirectory) return enter(std::move(*entry), left_out);
    if (frame.kind == FrameKind::kLink) return left_out ? Status() : link(*entry);
    return file(std::move(*entry), left_out);
  }

  /// Set-user-ID and set-group-ID are not kept, because owners are not: the local user would give its rights to others.
  unsigned mode_of(const Entry& entry) const {
    return options_.archive ? entry.mode & (S_ISVTX | 0777) : entry.mode & 0777 & ~mask_;
  }

  Status enter(Entry entry, bool left_out) {
    if (folders_.size() > kMaxDepth + 1)
      return make_error(Errc::kBadMessage, "the sending rdma_copy has sent more than " + std::to_string(kMaxDepth) +
                                               " nested directories");
    before_others();
    const TargetFolder& parent = *folders_.back();  // other threads that are in it hold it, too
    const unsigned mode = mode_of(entry);
    const auto folder = std::make_shared<TargetFolder>(path_, std::move(entry));
    folders_.push_back(folder);
    if (left_out) return {};
    const Status opened = options_.dry_run ? folder->look_into(parent) : folder->make(parent, mode, options_.archive);
    if (!opened.ok()) return fail(id_, path_, opened.error());
    const std::lock_guard lock(mutex_);
    ++counts_.directories;
    return {};
  }

  Status end_directory() {
    if (folders_.size() == 1 || writing_) {
      return make_error(Errc::kBadMessage, "the sending rdma_copy has ended a directory that it had not begun");
    }
    const std::shared_ptr<TargetFolder> folder = std::move(folders_.back());
    folders_.pop_back();
    return end_directory(*folder);
  }
  Status end_directory(TargetFolder& folder) {
    if (!folder.release() || folder.left_out() || options_.dry_run) return {};
    const Status settled = folder.settle(options_.archive, options_.sync);
    return settled.ok() ? settled : fail(folder.id(), folder.path(), settled.error());
  }

  /// Two of several sources may have the same name. The later one must find the earlier one's files.
  void before_others() {
    if (folders_.size() == 1) drain_crew();
  }

  Status link(const Entry& entry) {
    if (options_.dry_run) {
      if (Status may = folders_.back()->would_take(entry.name); !may.ok()) return fail(id_, path_, may.error());
    } else {
      before_others();
      const auto times = entry.modified.for_utimens();
      const Status named =
          publish_link(folders_.back()->fd(), entry.name, entry.target, options_.archive ? times.data() : nullptr);
      if (!named.ok()) return fail(id_, path_, named.error());
    }
    const std::lock_guard lock(mutex_);
    ++counts_.links;
    return {};
  }

  // Files -------------------------------------------------------------------------------------------------------------

  Status file(Entry entry, bool left_out) {
    size_ = entry.size;
    if (options_.dry_run) {
      if (left_out) return {};
      if (Status may = folders_.back()->would_take(entry.name); !may.ok()) return fail(id_, path_, may.error());
      count_file(size_);
      return {};
    }
    writing_ = true;
    if (left_out) return entry.asks ? tell_nothing() : Status();
    const unsigned mode = mode_of(entry);
    SmallFile file{.folder = folders_.back(),
                   .plan = {.folder = folders_.back()->fd(),
                            .new_folder = folders_.back()->is_new(),
                            .entry = std::move(entry),
                            .mode = mode,
                            .times = options_.archive,
                            .checksum = options_.checksum,
                            .resume = options_.resume,
                            .sync = options_.sync},
                   .path = path_};
    if (!file.plan.entry.asks && size_ <= kMaxSmall) {
      small_ = std::move(file);
      return {};
    }
    return begin(file.plan);
  }

  Status begin(const FileWriter::Plan& plan) {
    before_others();
    file_.emplace(plan, checksums_);
    if (Status begun = file_->begin(); !begun.ok()) {
      file_.reset();
      if (Status failed = fail(id_, path_, begun.error()); !failed.ok()) return failed;
      return plan.entry.asks ? tell_nothing() : Status();
    }
    const auto lock = turn_to_say();
    return file_->tell(writer_);
  }

  Status tell_nothing() {
    const auto lock = turn_to_say();
    if (Status said = writer_.put(FrameKind::kHave, Have{.id = id_}.encode()); !said.ok()) return said;
    return writer_.flush();
  }

  void count_file(std::uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    ++counts_.files;
    counts_.bytes += bytes;
  }

  Status take_part(const Frame& frame) {
    if (!writing_)
      return make_error(Errc::kBadMessage, "the sending rdma_copy has sent data without the name of a file before it");
    const Status outcome = frame.kind == FrameKind::kFileEnd ? end_file(frame) : write_part(frame);
    if (frame.kind == FrameKind::kFileEnd) writing_ = false;
    if (outcome.ok()) return {};
    if (outcome.code() != Errc::kBadMessage && file_) file_->discard();
    file_.reset();
    return fail(id_, path_, outcome.error());
  }

  Status write_part(const Frame& frame) {
    auto payload = frame.payload;
    if (frame.kind == FrameKind::kHole) {
      const auto extent = Extent::decode(payload);
      if (!extent) return extent.error();
      moved(extent->length);
      if (Status begun = no_small_one(); !begun.ok()) return begun;
      return file_ ? file_->hole(*extent) : Status();
    }
    if (frame.kind == FrameKind::kSame) {
      const auto same = Same::decode(payload);
      if (!same) return same.error();
      moved(same->length);
      if (Status begun = no_small_one(); !begun.ok()) return begun;
      return file_ ? file_->same(*same) : Status();
    }
    const auto offset = take_offset(payload);
    if (!offset) return offset.error();
    moved(payload.size());
    counts_.bytes_sent += payload.size();
    if (small_ && *offset == 0 && payload.size() == size_) {
      small_->bytes = payload;
      small_->keep = frame.block;
      return {};
    }
    if (Status begun = no_small_one(); !begun.ok()) return begun;
    return file_ ? file_->write(*offset, payload, frame.block) : Status();
  }

  /// The file has several parts after all, because it is sparse or is sent slowly.
  Status no_small_one() {
    if (!small_) return {};
    const SmallFile file = *std::exchange(small_, std::nullopt);
    if (Status begun = begin(file.plan); !begun.ok() || file.bytes.empty() || !file_) return begun;
    return file_->write(0, file.bytes, nullptr);
  }

  Status end_file(const Frame& frame) {
    const auto end = FileEnd::decode(frame.payload);
    if (!end) return end.error();
    if (small_) return end_small(*end, frame);
    if (!file_) return {};
    if (Status ended = file_->end(*end); !ended.ok()) return ended;
    file_.reset();
    if (end->state == FileEnd::State::kGivenUp) {
      ++given_up_;
    } else {
      count_file(size_);
    }
    return {};
  }

  Status end_small(const FileEnd& end, const Frame& frame) {
    const auto file = std::make_shared<SmallFile>(*std::exchange(small_, std::nullopt));
    if (end.state == FileEnd::State::kGivenUp) {
      ++given_up_;
      return {};
    }
    file->end = end;
    file->plan.at_once = true;
    if (!file->keep) file->keep = frame.block;  // limits the waiting files to the number of blocks
    file->folder->use();
    work_.begin();
    const Rest rest(&work_);  // the crew's thread may be busy
    crew_.add(file->plan.entry.name, [this, file] {
      note(write_small(*file));
      note(end_directory(*file->folder));
      work_.end();
    });
    return {};
  }

  /// Runs on a thread of the crew.
  Status write_small(const SmallFile& file) {
    FileWriter writer(file.plan, checksums_);  // which has too few bytes for a thread
    Status written = writer.begin();
    if (written.ok() && !file.bytes.empty()) written = writer.write(0, file.bytes, file.keep);
    if (written.ok()) written = writer.end(file.end);
    if (written.ok()) {
      count_file(file.plan.entry.size);
      return {};
    }
    if (written.code() != Errc::kBadMessage) writer.discard();
    return fail(file.plan.entry.id, file.path, written.error());
  }

  void moved(std::uint64_t bytes) const {
    if (events_.moved) events_.moved(bytes);
  }

  Status finish() {
    if (writing_ || folders_.size() != 1) {
      return make_error(Errc::kBadMessage,
                        "the sending rdma_copy has ended the copy in the middle of a file or directory");
    }
    drain_crew();
    if (Status good = broken(); !good.ok()) return good;
    if (asked_for_.missing() + given_up_ > 0 && counts_.failures == 0) {
      return make_error(Errc::kBadMessage,
                        "the sending rdma_copy has left out files that were asked for, and has given no reason");
    }
    if (options_.sync && !options_.dry_run && ::fsync(folders_.back()->fd()) != 0) {
      if (Status failed = fail(id_, folders_.back()->path()); !failed.ok()) return failed;
    }
    if (Status said = writer_.put(FrameKind::kResult, counts_.encode()); !said.ok()) return said;
    if (Status said = writer_.flush(); !said.ok()) return said;
    const auto frame = reader_.next(Deadline::never());
    if (!frame) return frame.error();
    if (*frame)
      return make_error(Errc::kBadMessage, "the sending rdma_copy has sent more data after the end of the copy");
    const Rest rest(&work_);
    return stream_.finish(Deadline::never());
  }

  RDMAStream& stream_;
  const CopyOptions& options_;
  const Events& events_;
  Counts& counts_;
  const unsigned mask_;
  AskedFor asked_for_;
  FrameReader& reader_;
  Work& work_;
  std::mutex saying_;  // the crew uses writer_. A separate lock, because it may be held for long
  FrameWriter writer_;
  std::string new_name_;                                // for the first entry, if the destination is a name
  std::vector<std::shared_ptr<TargetFolder>> folders_;  // the current ones; the first one is the destination's
  bool writing_ = false;                                // parts of a file are arriving
  programs::ChecksumQueue checksums_;
  std::optional<SmallFile> small_;  // that is arriving
  std::optional<FileWriter> file_;  // being written; if neither is set, the file has failed
  std::uint32_t id_ = 0;
  std::uint64_t size_ = 0;
  std::uint64_t given_up_ = 0;  // files that the source could not send completely
  std::string path_;
  std::mutex mutex_;  // guards the members below, and counts_, which the crew uses
  Status broken_;
  Crew crew_{std::clamp(std::thread::hardware_concurrency(), 1U, kMaxMembers)};
};

}  // namespace

Status run_sink(RDMAStream& stream, FrameReader& reader, const Place& place, const Destination& destination,
                const CopyOptions& options, const Events& events, Counts& counts, Work& work) {
  Status outcome;
  try {
    Sink sink(stream, reader, options, events, counts, destination, work);
    outcome = sink.open(place, destination);
    if (outcome.ok()) outcome = sink.run();
  } catch (const std::system_error& error) {  // no more threads for this user
    outcome = make_error(error.code(), "cannot start a thread that writes files");
  }
  if (!outcome.ok()) stream.abort(outcome.message());
  return outcome;
}

}  // namespace rdmacomm::copying
