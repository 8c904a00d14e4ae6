#include "support/child_process.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <string>

#include "base/system_call.h"
#include "rdmacomm/deadline.h"

namespace rdmacomm::programs {
namespace {

Error system_error(const std::string& what) {
  return make_error(last_system_error(), "cannot " + what);
}

/// Whether `fd` becomes readable (or is hung up) before the deadline.
bool readable(int fd, Deadline deadline) {
  pollfd entry{.fd = fd, .events = POLLIN, .revents = 0};
  return retry_interrupted([&] { return poll(&entry, 1, deadline.poll_timeout_ms()); }) > 0;
}

/// Runs in the child process. Never returns.
[[noreturn]] void be_the_server(const ServerProcess::Main& main, int port_pipe, pid_t parent) {
  prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (getppid() != parent) std::_Exit(1);  // the parent ended before the line above
  const int status = main([port_pipe](std::uint16_t port) {
    const std::array<unsigned char, 2> bytes = {static_cast<unsigned char>(port & 0xff),
                                                static_cast<unsigned char>(port >> 8)};
    (void)!retry_interrupted([&] { return write(port_pipe, bytes.data(), bytes.size()); });
    close(port_pipe);
  });
  std::cout.flush();
  std::exit(status);
}

std::string how_it_ended(int status) {
  if (WIFSIGNALED(status)) return "was ended by signal " + std::to_string(WTERMSIG(status));
  return "ended with exit status " + std::to_string(WEXITSTATUS(status));
}

}  // namespace

Result<std::unique_ptr<ServerProcess>> ServerProcess::start(const Main& main, std::chrono::seconds patience) {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return system_error("create a pipe to the server process");
  const UniqueFd read_end(ends[0]);
  UniqueFd write_end(ends[1]);
  std::cout.flush();
  const pid_t parent = getpid();
  const pid_t pid = fork();
  if (pid < 0) return system_error("start the server process");
  if (pid == 0) {
    close(read_end.get());
    be_the_server(main, write_end.get(), parent);
  }
  write_end.reset();
  UniqueFd pidfd(static_cast<int>(syscall(SYS_pidfd_open, pid, 0)));
  std::unique_ptr<ServerProcess> server(new ServerProcess(pid, std::move(pidfd)));

  std::array<unsigned char, 2> bytes{};
  if (!readable(read_end.get(), Deadline::after(patience))) {
    return make_error(Errc::kTimeout,
                      "the server process has not started to listen within " + std::to_string(patience.count()) + " s");
  }
  if (retry_interrupted([&] { return read(read_end.get(), bytes.data(), bytes.size()); }) != 2) {
    return make_error(Errc::kPeerLost, "the server process ended before it listened");
  }
  server->port_ = static_cast<std::uint16_t>(bytes[0] | bytes[1] << 8);
  return server;
}

ServerProcess::~ServerProcess() {
  end();
}

Status ServerProcess::wait(std::chrono::seconds patience) {
  if (reaped_) return {};
  if (pidfd_.valid() && !readable(pidfd_.get(), Deadline::after(patience))) {
    end();
    return make_error(Errc::kTimeout,
                      "the server process (pid " + std::to_string(pid_) + ") did not end after the run of its client");
  }
  int status = 0;
  const pid_t ended = retry_interrupted([&] { return waitpid(pid_, &status, 0); });
  // ECHILD: the process has ended, but its status was not kept. The client knows whether it was served.
  if (ended != pid_ && errno != ECHILD) return system_error("wait for the server process");
  reaped_ = true;
  if (status == 0) return {};
  return make_error(Errc::kPeerLost, "the server process (pid " + std::to_string(pid_) + ") " + how_it_ended(status));
}

void ServerProcess::end() noexcept {
  if (reaped_) return;
  kill(pid_, SIGTERM);
  // Without a pidfd (kernels before 5.3) no wait with a limit is possible, so the process is killed at once.
  if (!pidfd_.valid() || !readable(pidfd_.get(), Deadline::after(std::chrono::seconds(2)))) kill(pid_, SIGKILL);
  int status = 0;
  (void)retry_interrupted([&] { return waitpid(pid_, &status, 0); });
  reaped_ = true;
}

}  // namespace rdmacomm::programs
