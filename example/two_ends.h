// two_ends.h - the common part of the examples from 02 on: the role of this process, and its end.
//     PROGRAM             the server, which prints the port at which it listens
//     PROGRAM HOST:PORT   the client
#pragma once

#include <csignal>
#include <functional>
#include <iostream>

#include "rdmacomm/rdmacomm.h"

namespace two_ends {

inline rdmacomm::Status cannot_write() {
  return rdmacomm::make_error(std::make_error_code(std::errc::io_error), "cannot write to standard output");
}

/// Starts a server on any free port, and prints the port.
inline rdmacomm::Status listen(const rdmacomm::ServerSession& server, std::ostream& out = std::cout) {
  if (rdmacomm::Status started = server.start(); !started) return started;
  out << "listening on port " << server.port() << std::endl;
  return out ? rdmacomm::Status() : cannot_write();
}

/// The outcome of a wait for a completion, and of the request: ok if both are ok.
inline rdmacomm::Status outcome(const rdmacomm::Result<rdmacomm::Completion>& waited) {
  return waited ? waited->status() : waited.status();
}

/// For a server that runs until Ctrl-C or SIGTERM. Create it before any thread.
class Interrupt {
 public:
  Interrupt() {
    sigemptyset(&signals_);
    sigaddset(&signals_, SIGINT);
    sigaddset(&signals_, SIGTERM);
    sigprocmask(SIG_BLOCK, &signals_, nullptr);
  }
  void wait() const {
    int signal = 0;
    sigwait(&signals_, &signal);
  }

 private:
  sigset_t signals_{};
};

/// Runs one role. Returns the exit status: 0, or 1 after one line on standard error.
inline int run(int count, char** words, const std::function<rdmacomm::Status()>& serve,
               const std::function<rdmacomm::Status(const rdmacomm::HostPort& server)>& use) {
  rdmacomm::Status done;
  if (count > 2 || (count == 2 && words[1][0] == '-')) {
    done = rdmacomm::make_error(
        rdmacomm::Errc::kInvalidArgument,
        std::string("usage: ") + words[0] + "   for the server, or " + words[0] + " HOST:PORT   for the client");
  } else if (count < 2) {
    done = serve();
  } else {
    const auto server = rdmacomm::HostPort::parse(words[1]);
    done = server ? use(*server) : server.status();
  }
  if (done && !std::cout.flush()) done = cannot_write();
  if (!done) std::cerr << done.message() << '\n';
  return done ? 0 : 1;
}

}  // namespace two_ends
