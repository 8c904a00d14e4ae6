#include "support/mode_flags.h"

#include <gflags/gflags.h>

#include "support/program.h"

DEFINE_string(
    polling, "busy",
    "how a thread waits for completions. busy: it polls without a pause, and so keeps a core busy; channel (or "
    "event): it sleeps until the device wakes it; epoll: it sleeps in epoll_wait; adaptive: it polls for a "
    "short time, then sleeps");
DEFINE_string(
    threads, "none",
    "which threads take completions from the completion queues. none: the thread that waits for them; per-qp: one "
    "thread for each queue pair; shared-cq: one thread with one completion queue for all connections; sharded: as "
    "shared-cq, but the connections are divided among --shards such threads");
DEFINE_int32(shards, 4, "1 to 256: number of threads with --threads=sharded, each with its own completion queue");

namespace rdmacomm::programs {
namespace {

Error bad_mode(const char* flag, const std::string& value, const char* possible) {
  return make_error(Errc::kInvalidArgument, std::string("--") + flag + "=" + value + ": possible are " + possible);
}

Result<PollingMode> read_polling() {
  if (FLAGS_polling == "busy") return PollingMode::kBusyPoll;
  if (FLAGS_polling == "channel" || FLAGS_polling == "event") return PollingMode::kCompletionChannel;
  if (FLAGS_polling == "epoll") return PollingMode::kEpoll;
  if (FLAGS_polling == "adaptive") return PollingMode::kAdaptive;
  return bad_mode("polling", FLAGS_polling, "busy, channel, epoll and adaptive");
}

Status check_shards() {
  if (FLAGS_threads != "sharded" && is_given("shards")) {
    return make_error(Errc::kInvalidArgument,
                      "--shards=" + std::to_string(FLAGS_shards) +
                          ": works only with --threads=sharded, not with --threads=" + FLAGS_threads);
  }
  if (FLAGS_shards >= 1 && FLAGS_shards <= HcaConfig::kMaxSharedQueues) return {};
  return bad_mode("shards", std::to_string(FLAGS_shards), "1 to 256");
}

Status check_no_option(const char* flag) {
  if (!is_given(flag)) return {};
  return make_error(Errc::kInvalidArgument, std::string("--") + flag + " is not an option of this program; see --help");
}

}  // namespace

void ModeFlags::apply(HcaConfig& hca) const {
  hca.polling_mode = polling;
  hca.thread_mode = threads;
  hca.shared_queue_key = "all";
  hca.shared_queues = shared_queues;
}

Result<ModeFlags> read_mode_flags(OwnThread own) {
  if (own == OwnThread::kAlways) {
    for (const char* flag : {"threads", "shards"}) {
      if (Status absent = check_no_option(flag); !absent.ok()) return absent.error();
    }
  }
  const auto polling = read_polling();
  if (!polling) return polling.error();
  if (Status shards = check_shards(); !shards.ok()) return shards.error();
  const auto mode = [&](ThreadMode threads, int queues = 1) {
    return ModeFlags{.polling = *polling, .threads = threads, .shared_queues = queues};
  };
  const bool none = own != OwnThread::kNever;
  if (none && FLAGS_threads == "none") return mode(ThreadMode::kApplication);
  if (FLAGS_threads == "per-qp") return mode(ThreadMode::kThreadPerChannel);
  if (FLAGS_threads == "shared-cq") return mode(ThreadMode::kThreadPerCompletionQueue);
  if (FLAGS_threads == "sharded") return mode(ThreadMode::kThreadPerCompletionQueue, FLAGS_shards);
  return bad_mode("threads", FLAGS_threads,
                  none ? "none, per-qp, shared-cq and sharded" : "per-qp, shared-cq and sharded");
}

Help::Group mode_help(OwnThread own) {
  const HelpFlag polling{"polling", "busy|channel|epoll|adaptive"};
  HelpFlag threads{"threads", "none|per-qp|shared-cq|sharded"};
  if (own == OwnThread::kNever) {
    threads = {"threads", "per-qp|shared-cq|sharded",
               "which threads take completions from the completion queues. per-qp: one thread for each queue pair; "
               "shared-cq: one thread with one completion queue for all connections; sharded: as shared-cq, but the "
               "connections are divided among --shards such threads"};
  }
  return {"Completions (each process has its own settings)", {polling, threads, {"shards", "M"}}};
}

}  // namespace rdmacomm::programs
