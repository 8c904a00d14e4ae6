#include "support/mode_flags.h"

#include <gflags/gflags.h>

DEFINE_string(polling, "busy",
              "busy: a core spins for completions; channel: it sleeps until the device wakes it (event is another word "
              "for it); epoll: the same by epoll; adaptive: it spins for a while, then sleeps");
DEFINE_string(threads, "none",
              "who takes completions. none: the thread that waits for them; per-qp: a thread for each queue pair; "
              "shared-cq: one thread for all, on one completion queue; sharded: four of those share the connections");

namespace rdmacomm::programs {
namespace {

constexpr int kShards = 4;

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

}  // namespace

void ModeFlags::apply(HcaConfig& hca) const {
  hca.polling_mode = polling;
  hca.thread_mode = threads;
  hca.shared_queue_key = "all";
  hca.shared_queues = shared_queues;
}

Result<ModeFlags> read_mode_flags(OwnThread own) {
  const auto polling = read_polling();
  if (!polling) return polling.error();
  const auto mode = [&](ThreadMode threads, int queues = 1) {
    return ModeFlags{.polling = *polling, .threads = threads, .shared_queues = queues};
  };
  const bool none = own == OwnThread::kPossible;
  if (none && FLAGS_threads == "none") return mode(ThreadMode::kApplication);
  if (FLAGS_threads == "per-qp") return mode(ThreadMode::kThreadPerChannel);
  if (FLAGS_threads == "shared-cq") return mode(ThreadMode::kThreadPerCompletionQueue);
  if (FLAGS_threads == "sharded") return mode(ThreadMode::kThreadPerCompletionQueue, kShards);
  return bad_mode("threads", FLAGS_threads,
                  none ? "none, per-qp, shared-cq and sharded" : "per-qp, shared-cq and sharded");
}

Help::Group mode_help() {
  return {"How completions are waited for (each side for itself)",
          {{"polling", "busy|channel|epoll|adaptive"}, {"threads", "none|per-qp|shared-cq|sharded"}}};
}

}  // namespace rdmacomm::programs
