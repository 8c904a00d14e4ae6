#include "mesh_comm_service/launcher.h"

#include <poll.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/system_call.h"
#include "base/unique_fd.h"
#include "rdmacomm/deadline.h"
#include "support/program.h"

namespace rdmacomm::mesh {
namespace {

constexpr std::size_t kPortBytes = 2;
constexpr const char* kLocalHost = "127.0.0.1";

Error system_error(const std::string& what) {
  return make_error(last_system_error(), "cannot " + what);
}

struct Pipe {
  UniqueFd read;
  UniqueFd write;
};

Result<Pipe> make_pipe() {
  std::array<int, 2> ends{};
  if (pipe(ends.data()) != 0) return system_error("create a pipe to the process of a node");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// A pipe whose writer gets no signal when the reader has ended: see send_all.
Result<Pipe> make_socket_pipe() {
  std::array<int, 2> ends{};
  if (socketpair(AF_UNIX, SOCK_STREAM, 0, ends.data()) != 0)
    return system_error("create a socket to the process of a node");
  return Pipe{UniqueFd(ends[0]), UniqueFd(ends[1])};
}

/// Sends `text` to a process. If the process has ended, the text is not needed.
void send_all(int socket, std::string_view text) {
  while (!text.empty()) {
    const auto sent = retry_interrupted([&] { return send(socket, text.data(), text.size(), MSG_NOSIGNAL); });
    if (sent <= 0) return;
    text.remove_prefix(static_cast<std::size_t>(sent));
  }
}

/// Returns the system's error if not everything could be written. A missing reader is no error.
std::error_code write_all(int fd, std::string_view text) {
  while (!text.empty()) {
    const auto written = retry_interrupted([&] { return write(fd, text.data(), text.size()); });
    if (written < 0) return errno == EPIPE ? std::error_code() : last_system_error();
    text.remove_prefix(static_cast<std::size_t>(written));
  }
  return {};
}

/// Returns false if the input ends before.
bool read_exactly(int fd, std::string& text, std::size_t bytes) {
  text.resize(bytes);
  for (std::size_t at = 0; at < bytes;) {
    const auto got = retry_interrupted([&] { return read(fd, text.data() + at, bytes - at); });
    if (got <= 0) return false;
    at += static_cast<std::size_t>(got);
  }
  return true;
}

std::string port_text(std::uint16_t port) {
  return {static_cast<char>(port & 0xff), static_cast<char>(port >> 8)};
}
std::uint16_t port_in(std::string_view text) {
  return static_cast<std::uint16_t>(static_cast<unsigned char>(text[0]) | static_cast<unsigned char>(text[1]) << 8);
}

/// The output of a process through one pipe.
struct Stream {
  UniqueFd fd;
  std::string text;  ///< read and not yet passed on

  [[nodiscard]] bool open() const noexcept { return fd.valid(); }
  void read_some() {
    std::array<char, 65536> room{};
    const auto got = retry_interrupted([&] { return read(fd.get(), room.data(), room.size()); });
    if (got <= 0) return fd.reset();
    text.append(room.data(), static_cast<std::size_t>(got));
  }
  /// Takes the text up to the last end of a line, or all of it if no more will arrive.
  std::string take_lines() {
    const auto end = open() ? text.rfind('\n') : text.size() - 1;
    if (text.empty() || end == std::string::npos) return {};
    std::string lines = text.substr(0, end + 1);
    text.erase(0, end + 1);
    return lines;
  }
};

struct Child {
  pid_t pid = -1;
  Stream out;
  Stream err;
  Stream summary;
  Stream port;
  UniqueFd list;  ///< to it: the ports of all nodes
  std::optional<int> status;

  [[nodiscard]] bool is_stopped() const {
    std::ifstream stat("/proc/" + std::to_string(pid) + "/stat");
    std::string line;
    std::getline(stat, line);
    const auto name_ends = line.rfind(')');
    return name_ends != std::string::npos && line.compare(name_ends, 4, ") T ") == 0;
  }
};

class LocalRun {
 public:
  explicit LocalRun(const NodeMain& node) : node_(node) {}
  ~LocalRun() { end_all(); }
  LocalRun(const LocalRun&) = delete;
  LocalRun& operator=(const LocalRun&) = delete;

  int run(int nodes) {
    for (int rank = 0; rank < nodes; ++rank) {
      if (Status started = start(rank); !started.ok()) return programs::exit_status(started);
    }
    while (std::ranges::any_of(children_, [](const Child& child) { return !child.status; })) {
      listen_to_children();
      introduce_children();
      reap();
      end_stopped();
    }
    return conclude();
  }

 private:
  Status start(int rank) {
    auto out = make_pipe();
    auto err = make_pipe();
    auto summary = make_pipe();
    auto port = make_pipe();
    auto list = make_socket_pipe();
    for (const Status& made : {out.status(), err.status(), summary.status(), port.status(), list.status()}) {
      if (!made.ok()) return made;
    }
    std::cout.flush();
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid < 0) return system_error("start the process of node " + std::to_string(rank));
    if (pid == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      if (getppid() != parent) std::_Exit(1);  // the parent ended before the line above
      children_.clear();                       // the pipes of its siblings
      dup2(out->write.get(), STDOUT_FILENO);
      dup2(err->write.get(), STDERR_FILENO);
      for (Pipe* const each : {&*out, &*err}) *each = {};
      summary->read.reset();
      port->read.reset();
      list->write.reset();
      be_a_node(rank, std::move(summary->write), std::move(port->write), std::move(list->read));
    }
    Child& child = children_.emplace_back();
    child.pid = pid;
    child.out.fd = std::move(out->read);
    child.err.fd = std::move(err->read);
    child.summary.fd = std::move(summary->read);
    child.port.fd = std::move(port->read);
    child.list = std::move(list->write);
    return {};
  }

  [[noreturn]] void be_a_node(int rank, UniqueFd summary_out, UniqueFd port_out, UniqueFd list_in) {
    const auto find_cluster = [&](std::uint16_t port) -> Result<Cluster> {
      (void)write_all(port_out.get(), port_text(port));
      std::string list;
      std::string bytes;
      if (!read_exactly(list_in.get(), bytes, kPortBytes)) {
        return make_error(Errc::kStopped, "another node has failed to start");
      }
      const std::size_t nodes = port_in(bytes);
      if (!read_exactly(list_in.get(), list, nodes * kPortBytes)) {
        return make_error(Errc::kStopped, "the launcher has ended");
      }
      Cluster cluster;
      for (std::size_t i = 0; i < nodes; ++i)
        cluster.push_back({kLocalHost, port_in(std::string_view(list).substr(i * kPortBytes))});
      return cluster;
    };
    const auto summarize = [&](std::string_view text) { (void)write_all(summary_out.get(), text); };
    const int status = node_(rank, find_cluster, summarize);
    std::cout.flush();
    std::exit(status);
  }

  void listen_to_children() {
    std::vector<pollfd> entries;
    std::vector<Stream*> streams;
    for (Child& child : children_) {
      for (Stream* const stream : {&child.out, &child.err, &child.summary, &child.port}) {
        if (!stream->open()) continue;
        entries.push_back({.fd = stream->fd.get(), .events = POLLIN, .revents = 0});
        streams.push_back(stream);
      }
    }
    constexpr int kLookEveryMs = 50;  // processes end, and are stopped, without an event here
    if (retry_interrupted([&] { return poll(entries.data(), entries.size(), kLookEveryMs); }) <= 0) return;
    for (std::size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].revents != 0) streams[i]->read_some();
    }
    if (!introduced_) return;  // if one fails to start, the others need not report it, too
    for (Child& child : children_) pass_on(child.err.take_lines());
    print(children_.front().out.take_lines());
  }

  /// Once all processes listen, sends each of them all ports. If one has ended before that, releases the others: a live
  /// process keeps its end of the port pipe open.
  void introduce_children() {
    if (introduced_ || failed_to_start_) return;
    std::string list = port_text(static_cast<std::uint16_t>(children_.size()));
    bool all_listen = true;
    for (std::size_t rank = 0; rank < children_.size() && !failed_to_start_; ++rank) {
      const Stream& port = children_[rank].port;
      if (!port.open()) failed_to_start_ = rank;
      all_listen = all_listen && port.text.size() >= kPortBytes;
      list += port.text.substr(0, kPortBytes);
    }
    if (failed_to_start_) {
      for (Child& child : children_) child.list.reset();
    }
    if (failed_to_start_ || !all_listen) return;
    for (Child& child : children_) {
      send_all(child.list.get(), list);
      child.list.reset();
    }
    introduced_ = true;
  }

  void reap() {
    for (Child& child : children_) {
      int status = 0;
      const bool has_open_output = child.out.open() || child.err.open() || child.summary.open();
      if (child.status || has_open_output) continue;
      const pid_t ended = waitpid(child.pid, &status, WNOHANG);
      if (ended == child.pid) child.status = status;
      // It has ended, but its status was not kept, so it does not count as success.
      if (ended < 0 && errno == ECHILD) child.status = W_EXITCODE(1, 0);
    }
  }

  /// If all processes have ended or are stopped, ends the stopped ones: no other process needs them.
  void end_stopped() {
    const bool all =
        std::ranges::all_of(children_, [](const Child& child) { return child.status || child.is_stopped(); });
    if (!all) {
      stopped_until_.reset();
      return;
    }
    if (!stopped_until_) stopped_until_ = Deadline::after(kStoppedFor);
    if (!stopped_until_->passed()) return;
    for (const Child& child : children_) {
      if (!child.status) kill(child.pid, SIGKILL);
    }
  }

  void end_all() noexcept {
    for (Child& child : children_) {
      if (child.status) continue;
      kill(child.pid, SIGKILL);
      int status = 0;
      (void)retry_interrupted([&] { return waitpid(child.pid, &status, 0); });
    }
  }

  int conclude() {
    print(children_.front().out.take_lines());
    int outcome = 0;
    for (std::size_t rank = 0; rank < children_.size(); ++rank) {
      Child& child = children_[rank];
      const bool speaks = !failed_to_start_ || *failed_to_start_ == rank;  // the others only report its failure
      if (speaks) pass_on(child.err.take_lines());
      if (rank > 0) print_with_rank(rank, child.out.take_lines());
      if (*child.status != 0) outcome = 1;
      if (!speaks || !WIFSIGNALED(*child.status)) continue;
      complain(programs::program_name() + ": node " + std::to_string(rank) + " (pid " + std::to_string(child.pid) +
               ") was ended by signal " + std::to_string(WTERMSIG(*child.status)) + "\n");
    }
    for (Child& child : children_) print(child.summary.take_lines());
    if (!unwritten_) return outcome;
    complain(programs::program_name() + ": cannot write to standard output: " + unwritten_.message() + "\n");
    return 1;
  }

  void print(std::string_view text) {
    if (unwritten_) return;
    unwritten_ = write_all(STDOUT_FILENO, text);
  }
  static void complain(std::string_view text) { (void)write_all(STDERR_FILENO, text); }

  /// Passes on a node's standard error, without warnings that another node has already logged. All nodes use the same
  /// device and log the same warnings about it.
  void pass_on(std::string_view lines) {
    std::string passed;
    while (!lines.empty()) {
      const std::string_view line = lines.substr(0, std::min(lines.find('\n'), lines.size() - 1) + 1);
      lines.remove_prefix(line.size());
      // "W1125 22:07:38.123456 4711 file.cc:7] text": the part before the file name differs between nodes.
      const auto end = line.find("] ");
      const auto place = end == std::string_view::npos ? end : line.rfind(' ', end);
      const bool warning = line.size() > 5 && line[0] == 'W' &&
                           std::isdigit(static_cast<unsigned char>(line[1])) != 0 && place != std::string_view::npos;
      if (!warning || warned_.emplace(line.substr(place)).second) passed += line;
    }
    complain(passed);
  }

  void print_with_rank(std::size_t rank, const std::string& text) {
    std::string lines;
    for (std::size_t at = 0; at < text.size();) {
      const auto end = std::min(text.find('\n', at), text.size() - 1);
      lines += "[" + std::to_string(rank) + "] " + text.substr(at, end + 1 - at);
      at = end + 1;
    }
    print(lines);
  }

  const NodeMain& node_;
  std::vector<Child> children_;
  bool introduced_ = false;
  std::optional<std::size_t> failed_to_start_;  // rank of the first process seen that ended before all listened
  std::optional<Deadline> stopped_until_;
  std::set<std::string> warned_;
  std::error_code unwritten_;  // the error of writing to standard output
};

}  // namespace

int run_local(int nodes, const NodeMain& node) {
  LocalRun run(node);
  return run.run(nodes);
}

}  // namespace rdmacomm::mesh
