// session_test_tools.h - servers and clients that record what their hooks see.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <condition_variable>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "rdmacomm/buffer.h"
#include "rdmacomm/session.h"
#include "support/hooked.h"

namespace rdmacomm::testing {

inline Deadline soon() {
  return Deadline::after(std::chrono::seconds(20));
}
inline Deadline tiny() {
  return Deadline::after(std::chrono::milliseconds(5));
}

/// Records what hooks see, in order, and lets tests wait for an entry. Threads: any.
class Record {
 public:
  void add(const std::string& line) {
    const std::lock_guard lock(mutex_);
    lines_.push_back(line);
    changed_.notify_all();
  }
  [[nodiscard]] std::vector<std::string> lines() const {
    const std::lock_guard lock(mutex_);
    return lines_;
  }
  [[nodiscard]] int count(const std::string& wanted) const {
    const std::lock_guard lock(mutex_);
    return count_locked(wanted);
  }
  /// Waits until `wanted` was recorded `times` times. Returns false after 20 s.
  [[nodiscard]] bool wait_for(const std::string& wanted, int times = 1) { return wait_until(soon(), wanted, times); }
  [[nodiscard]] bool wait_until(Deadline deadline, const std::string& wanted, int times = 1) {
    std::unique_lock lock(mutex_);
    return changed_.wait_until(lock, deadline.time_point(), [&] { return count_locked(wanted) >= times; });
  }

 private:
  int count_locked(const std::string& wanted) const {
    return static_cast<int>(std::count(lines_.begin(), lines_.end(), wanted));
  }
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::string> lines_;
};

/// Hooks that record their calls, and run the functions that a test sets.
class Recording : public SessionHooks {
 public:
  Status init_session(const RDMADevice& /*device*/) override {
    record.add("init");
    if (initialise) initialise();
    return init_result;
  }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    record.add("config");
    return configure ? configure(hca, peer) : Status();
  }
  Status post_connecting(const EndPoint& endpoint) override {
    record.add("post_connecting");
    return connecting ? connecting(endpoint) : Status();
  }
  void on_established(const EndPoint& endpoint) override {
    record.add("established");
    if (established) established(endpoint);
  }
  void on_send_done(const EndPoint&, const Completion& completion) override { record_done("send", completion); }
  void on_recv_done(const EndPoint& endpoint, const Completion& completion) override {
    record_done("recv", completion);
    if (received) received(endpoint, completion);
  }
  void on_write_done(const EndPoint&, const Completion& completion) override { record_done("write", completion); }
  void on_read_done(const EndPoint&, const Completion& completion) override { record_done("read", completion); }
  void on_atomic_done(const EndPoint&, const Completion& completion) override { record_done("atomic", completion); }
  void on_recv_write_imm_done(const EndPoint&, const Completion& completion) override {
    record_done("recv_imm", completion);
  }
  void on_failed(const EndPoint&, const Completion& completion) override {
    record.add("failed " + make_error_code(completion.error).message());
  }
  void on_disconnected(const EndPoint& endpoint, const Status& why) override {
    record.add(why ? "disconnected ok" : "disconnected " + why.code().message());
    if (disconnected) disconnected(endpoint, why);
  }
  void on_ended(const EndPoint& endpoint, const Status& why) override {
    ends.add(why ? "ok" : why.code().message());
    if (ended) ended(endpoint, why);
  }
  bool on_connect_failed(const std::string&, const Error& why) override {
    reasons.add(why.context);  // first: must be there when a test has waited for the record
    record.add("connect_failed " + why.code.message());
    return true;
  }

  Record record;
  Record reasons;
  Record ends;  // arguments of on_ended
  Status init_result;
  std::function<void()> initialise;
  std::function<Status(HcaConfig&, const PeerInfo&)> configure;
  std::function<Status(const EndPoint&)> connecting;
  std::function<void(const EndPoint&)> established;
  std::function<void(const EndPoint&, const Completion&)> received;
  std::function<void(const EndPoint&, const Status&)> disconnected;
  std::function<void(const EndPoint&, const Status&)> ended;

 private:
  void record_done(const char* what, const Completion& completion) {
    record.add(what + (" " + std::to_string(completion.id)));
  }
};
using TestServer = Hooked<ServerSession, Recording>;
using TestClient = Hooked<ClientSession, Recording>;

inline SessionOptions local_options(std::uint16_t port = 0) {
  return {.device = {.name = "soft0"}, .address = {"127.0.0.1", port}};
}

inline TestServer make_server(SessionOptions options = local_options()) {
  return TestServer(std::move(options));
}
inline TestClient make_client(const ServerSession& server) {
  return TestClient(local_options(server.port()));
}

inline RDMABuffer make_buffer(const RDMADevice& device, RemoteAccess access = RemoteAccess::kNone) {
  auto buffer = RDMABuffer::allocate(device, {.block_bytes = 64, .block_count = 8, .remote_access = access});
  EXPECT_TRUE(buffer.has_value()) << buffer.status().message();
  return std::move(*buffer);
}

inline Completion wait_one(const EndPoint& endpoint) {
  const auto completion = endpoint.next(soon());
  EXPECT_TRUE(completion) << completion.status().message();
  return completion ? *completion : Completion();
}

inline std::size_t entries_of(const char* directory) {
  const std::filesystem::directory_iterator all(directory);
  return static_cast<std::size_t>(std::distance(begin(all), end(all)));
}
inline std::size_t open_descriptors() {
  return entries_of("/proc/self/fd");
}
inline std::size_t running_threads() {
  return entries_of("/proc/self/task");
}

/// Expects that the numbers of descriptors and threads fall back to these values soon. A joined thread stays in /proc
/// for a moment, and the owner of the last peer's resources frees them the next time it checks.
inline void expect_back_to(std::size_t descriptors, std::size_t threads) {
  const Deadline deadline = soon();
  while ((running_threads() > threads || open_descriptors() > descriptors) && !deadline.passed()) {
    std::this_thread::yield();
  }
  EXPECT_LE(open_descriptors(), descriptors);
  EXPECT_LE(running_threads(), threads);
}

}  // namespace rdmacomm::testing
