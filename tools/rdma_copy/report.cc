#include "rdma_copy/report.h"

#include <algorithm>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/system_call.h"
#include "rdma_copy/total_size.h"
#include "support/display.h"
#include "support/program.h"

namespace rdmacomm::copying {
namespace {

/// The most failures in the JSON, because a server can report any number.
constexpr std::size_t kMaxFailures = 10'000;

std::string counted(std::uint64_t count, const char* one, const char* several) {
  return std::to_string(count) + ' ' + (count == 1 ? one : several);
}

}  // namespace

Report::Report(const Options& options)
    : options_(options),
      progress_(
          {.out = options.err, .shown = options.progress, .about = [this](std::size_t room) { return about(room); }}) {
  events_.failed = [this](const std::string& text) {
    if (options_.json) {
      const std::lock_guard lock(mutex_);
      if (failures_.size() < kMaxFailures) {
        failures_.push_back(text);
      } else {
        ++failures_left_out_;
      }
    }
    progress_.say(text);
  };
  if (options.names || options.progress) {
    events_.entry = [this](const std::string& path, std::uint64_t size) { entry(path, size); };
  }
  if (!options.progress) return;
  events_.moved = [this](std::uint64_t bytes) { moved(bytes); };
  if (options.sources.empty()) return;
  try {
    sizing_ = std::thread([this] {
      if (const auto total = total_size(options_.sources, options_.recursive, over_)) progress_.set_total(*total);
    });
  } catch (const std::system_error&) {  // no more threads for this user: the time left is not shown
  }
}

Report::~Report() {
  over_ = true;
  if (sizing_.joinable()) sizing_.join();
}

void Report::entry(const std::string& path, std::uint64_t size) {
  if (options_.names) options_.out << escaped(path) << '\n';
  if (!options_.progress) return;
  const std::lock_guard lock(mutex_);
  path_ = path;
  size_ = size;
  done_ = 0;
  ++entries_;
  if (options_.one_file) progress_.set_total(size);
}

void Report::moved(std::uint64_t bytes) {
  progress_.add(bytes);
  const std::lock_guard lock(mutex_);
  done_ += bytes;
}

/// "big file 45 %, entry 12: ". If room is short, parts are left out: first a part of the name.
std::string Report::about(std::size_t room) {
  constexpr std::size_t kMaxName = 40;
  constexpr std::size_t kMinName = 5;
  const std::lock_guard lock(mutex_);
  if (entries_ == 0) return "";
  const std::uint64_t percent = size_ == 0 ? 100 : std::min<std::uint64_t>(100, done_ / ((size_ + 99) / 100));
  const std::string numbers = ' ' + std::to_string(percent) + " %, entry " + std::to_string(entries_) + ": ";
  if (room < numbers.size() + kMinName) return "";
  const std::string name = escaped(path_.substr(path_.find_last_of('/') + 1));
  return programs::fitted(name, std::min(kMaxName, room - numbers.size())) + numbers;
}

/// "3 files, 1 directory, 45.1 MB (1.20 MB sent), 120 MB/s, 0.4 s, 1 failed"
std::string Report::summary(const Counts& counts) const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
  const auto tenths = static_cast<std::uint64_t>(seconds.count() * 10);
  std::string text = counted(counts.files, "file", "files");
  if (counts.directories > 0) text += ", " + counted(counts.directories, "directory", "directories");
  if (counts.links > 0) text += ", " + counted(counts.links, "link", "links");
  text += ", " + programs::amount_text(static_cast<double>(counts.bytes));
  if (options_.dry_run) {
    text = "would copy " + text + "; nothing was changed";
  } else {
    if (counts.bytes_sent != counts.bytes)
      text += " (" + programs::amount_text(static_cast<double>(counts.bytes_sent)) + " sent)";
    text += ", " + programs::amount_text(static_cast<double>(counts.bytes) / seconds.count()) + "/s, " +
            std::to_string(tenths / 10) + '.' + std::to_string(tenths % 10) + " s";
  }
  return counts.failures == 0 ? text : text + ", " + std::to_string(counts.failures) + " failed";
}

std::string Report::json(const Counts& counts, const Status& outcome) const {
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - began_;
  const programs::ProcessorTime used = programs::processor_time();
  nlohmann::ordered_json result = {{"ok", outcome.ok() && counts.failures == 0},
                                   {"dry_run", options_.dry_run},
                                   {"files", counts.files},
                                   {"directories", counts.directories},
                                   {"links", counts.links},
                                   {"bytes", counts.bytes},
                                   {"bytes_sent", counts.bytes_sent},
                                   {"failures", failures_},
                                   {"failures_left_out", failures_left_out_},
                                   {"error", outcome.ok() ? "" : programs::reason_text(outcome)},
                                   {"seconds", seconds.count()},
                                   {"bytes_per_second", static_cast<double>(counts.bytes) / seconds.count()},
                                   {"user_seconds", used.user_seconds},
                                   {"system_seconds", used.system_seconds}};
  return result.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Status Report::end(const Counts& counts, const Status& outcome) {
  errno = EIO;  // in case the stream does not set it
  if (options_.json) options_.out << json(counts, outcome) << '\n';
  if (options_.progress && outcome.ok()) progress_.say(summary(counts));
  if (options_.out.flush()) return {};
  return make_error(last_system_error(), "cannot write to standard output");
}

}  // namespace rdmacomm::copying
