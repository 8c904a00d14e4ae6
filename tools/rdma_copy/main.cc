// rdma_copy - copies files and trees to another host, and from it. See --help.
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/signalfd.h>
#include <unistd.h>

#include <csignal>
#include <iostream>
#include <string_view>

#include "base/system_call.h"
#include "base/unique_fd.h"
#include "rdma_copy/client.h"
#include "rdma_copy/copy_flags.h"
#include "rdma_copy/report.h"
#include "rdma_copy/server.h"
#include "support/listening_text.h"
#include "support/program.h"

namespace rdmacomm::copying {
namespace {

/// Each client needs an open descriptor for each directory that it is in.
void allow_many_files() {
  rlimit limit{};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return;
  limit.rlim_cur = limit.rlim_max;
  (void)::setrlimit(RLIMIT_NOFILE, &limit);
}

/// A signal handler: tells the user how to resume an interrupted copy. Then the signal has its usual effect.
void say_how_to_go_on(int number) {
  constexpr std::string_view kText =
      "\r\033[Krdma_copy: interrupted; the same command with --resume continues the file that was begun\n";
  [[maybe_unused]] const ssize_t written = ::write(STDERR_FILENO, kText.data(), kText.size());
  (void)::raise(number);
}

/// For terminals only. An ignored signal stays ignored.
void explain_interrupts() {
  struct sigaction now = {};
  if (::sigaction(SIGINT, nullptr, &now) != 0 || now.sa_handler != SIG_DFL) return;
  now.sa_handler = say_how_to_go_on;
  now.sa_flags = static_cast<int>(SA_RESETHAND);
  (void)::sigaction(SIGINT, &now, nullptr);
}

Status serve(const std::vector<std::string>& words) {
  auto options = read_server_options(words);
  if (!options) return options.error();
  allow_many_files();
  sigset_t ends;
  sigemptyset(&ends);
  sigaddset(&ends, SIGTERM);
  sigaddset(&ends, SIGINT);
  pthread_sigmask(SIG_BLOCK, &ends, nullptr);  // before there are other threads
  const UniqueFd stop(::signalfd(-1, &ends, SFD_CLOEXEC));
  if (!stop) return make_error(last_system_error(), "cannot wait for signals");
  options->listening = [&](std::uint16_t port) {
    std::cout << "serving " << escaped(options->root) << ", "
              << programs::listening_text(options->connection.session.address.host, port) << std::endl;
  };
  return run_server(*options, stop.get());
}

int copy(const std::vector<std::string>& words) {
  const auto options = read_client_options(words);
  if (!options) return programs::exit_status(options.status());
  const ReportFlags flags = read_report_flags();
  const bool push = options->direction == Direction::kPush;
  if (flags.progress && !options->copy.dry_run) explain_interrupts();
  Counts counts;
  Status outcome;
  Status said;
  {
    Report report({.out = std::cout,
                   .err = std::cerr,
                   .names = flags.names,
                   .progress = flags.progress,
                   .json = flags.json,
                   .dry_run = options->copy.dry_run,
                   .sources = push ? options->sources : std::vector<std::string>(),
                   .recursive = options->copy.recursive,
                   .one_file = !push && options->sources.size() == 1 && !options->copy.recursive});
    outcome = run_client(*options, report.events(), counts);
    said = report.end(counts, outcome);
  }
  if (!outcome.ok() || !said.ok()) return programs::exit_status(outcome.ok() ? said : outcome);
  return counts.failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace rdmacomm::copying

int main(int argc, char** argv) {
  using namespace rdmacomm;
  std::vector<std::string> words;
  if (const auto ended = copying::start(argc, argv, words)) return *ended;
  return copying::serve_wanted() ? programs::exit_status(copying::serve(words)) : copying::copy(words);
}
