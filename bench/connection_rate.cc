// connection_rate - measures how fast connections are set up, and what each needs: many clients and one server.
#include <gflags/gflags.h>

#include <atomic>
#include <chrono>
#include <cmath>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <type_traits>
#include <vector>

#include "rdmacomm/session.h"
#include "support/child_process.h"
#include "support/client_domain.h"
#include "support/descriptor_limit.h"
#include "support/program.h"

DEFINE_int32(clients, 1000, "number of connections, all of them open at the end");
DEFINE_int32(threads, 8, "number of threads that connect at the same time");
DEFINE_int32(depth, 16, "number of requests in each queue of a queue pair");
DEFINE_string(on, "soft0", "RDMA device");
DEFINE_double(least, -1,
              "least number of connections per second; fewer cause exit status 1. -1: 500 if there are at least 1000 "
              "clients, otherwise 0");
DEFINE_bool(domains, false, "server: use a protection domain for each connection");
DEFINE_bool(sessions, false, "use a client session for each connection, instead of one for all");

namespace rdmacomm::bench {
namespace {

/// One channel, and one completion queue and thread for all endpoints.
void fit(HcaConfig& hca) {
  ChannelConfig channel{.name = kDataChannel};
  channel.adapter.send_depth = FLAGS_depth;
  channel.adapter.recv_depth = FLAGS_depth;
  channel.adapter.max_send_slices = 1;
  channel.adapter.max_recv_slices = 1;
  channel.adapter.max_inline_bytes = 0;
  hca.channels = {channel};
  hca.thread_mode = ThreadMode::kThreadPerCompletionQueue;
  hca.polling_mode = PollingMode::kCompletionChannel;
  hca.shared_queue_key = "all";
}

SessionFunctions client_hooks() {
  return {.lazy_config_hca = [](HcaConfig& hca, const PeerInfo& /*peer*/) {
    fit(hca);
    return Status();
  }};
}

SessionFunctions server_hooks() {
  const auto opened = std::make_shared<RDMADevice>();
  return {.init_session =
              [opened](const RDMADevice& device) {
                *opened = device;
                return Status();
              },
          .lazy_config_hca =
              [opened](HcaConfig& hca, const PeerInfo& /*peer*/) {
                fit(hca);
                return FLAGS_domains ? programs::give_own_domain(hca, *opened) : Status();
              }};
}

std::uint64_t resident_bytes() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmRSS:")) return std::stoull(line.substr(6)) * 1024;
  }
  return 0;
}

SessionOptions options_for(std::uint16_t port) {
  SessionOptions options;
  options.device.name = FLAGS_on;
  options.address = {.host = "127.0.0.1", .port = port};
  options.max_endpoints = FLAGS_clients + 1;
  options.max_endpoints_per_source = options.max_endpoints;  // all of them are on this host
  options.tcp.connect_timeout = options.tcp.handshake_timeout = std::chrono::seconds(60);
  return options;
}

/// Prints what its connections need once all of them are established, and ends after they have closed.
int serve(const std::function<void(std::uint16_t)>& listening) {
  const ServerSession server(options_for(0), server_hooks());
  if (Status started = server.start(); !started.ok()) return programs::exit_status(started);
  const std::uint64_t before = resident_bytes();
  listening(server.port());
  for (int i = 0; i < FLAGS_clients; ++i) {
    const auto endpoint = server.accept(Deadline::after(std::chrono::seconds(120)));
    if (!endpoint) return programs::exit_status(endpoint.error());
  }
  std::cout << "server: " << (resident_bytes() - before) / static_cast<std::uint64_t>(FLAGS_clients)
            << " bytes of memory per connection" << std::endl;
  while (!server.endpoints().empty()) std::this_thread::sleep_for(std::chrono::milliseconds(10));
  return 0;
}

Status check_rate(double rate) {
  const double least = FLAGS_least >= 0 ? FLAGS_least : FLAGS_clients >= 1000 ? 500 : 0;
  if (rate >= least) return {};
  return make_error(std::make_error_code(std::errc::result_out_of_range),
                    std::to_string(std::lround(rate)) + " connections per second are fewer than the required " +
                        std::to_string(std::lround(least)) + " (--least)");
}

Status connect_all(std::uint16_t port) {
  const ClientSession first(options_for(port), client_hooks());
  std::vector<ClientSession> sessions;
  // The clock starts after the device is opened and the first session has started.
  auto opened = first.connect();
  if (!opened) return opened.status();
  for (int i = 1; FLAGS_sessions && i < FLAGS_clients; ++i) {
    SessionOptions options = options_for(port);
    options.shared_device = first.device();
    options.queues_of = &first;
    sessions.emplace_back(options, client_hooks());
  }
  const std::uint64_t before = resident_bytes();
  std::atomic<int> next{1};
  std::vector<Status> outcomes(static_cast<std::size_t>(FLAGS_threads));
  std::vector<EndPoint> endpoints(static_cast<std::size_t>(FLAGS_clients));
  const auto began = std::chrono::steady_clock::now();
  std::vector<std::thread> threads;
  for (Status& outcome : outcomes) {
    threads.emplace_back([&] {
      for (int i = next++; i < FLAGS_clients && outcome.ok(); i = next++) {
        const ClientSession& session = FLAGS_sessions ? sessions[static_cast<std::size_t>(i - 1)] : first;
        auto endpoint = session.connect();
        if (endpoint) endpoints[static_cast<std::size_t>(i)] = std::move(*endpoint);
        outcome = endpoint.status();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
  for (const Status& outcome : outcomes) {
    if (!outcome.ok()) return outcome;
  }
  const double count = FLAGS_clients - 1;
  const double rate = count / elapsed.count();
  std::cout << "clients: " << static_cast<double>(resident_bytes() - before) / count
            << " bytes of memory per connection\n"
            << FLAGS_clients << " connections, " << FLAGS_threads << " at a time: " << rate << " per second, "
            << elapsed.count() / count * 1e6 << " us each" << std::endl;
  for (auto& session : sessions) session.stop();
  first.stop();
  return check_rate(rate);
}

int run() {
  // A connection needs one descriptor at each end, a session four.
  const std::uint64_t descriptors = 100 + static_cast<std::uint64_t>(FLAGS_clients) * (FLAGS_sessions ? 4 : 1);
  if (Status allowed = programs::allow_descriptors(descriptors); !allowed.ok()) return programs::exit_status(allowed);
  const auto server = programs::ServerProcess::start(serve, std::chrono::seconds(30));
  if (!server) return programs::exit_status(server.error());
  const int status = programs::exit_status(connect_all((*server)->port()));
  if (status != 0) return status;
  return programs::exit_status((*server)->wait(std::chrono::seconds(60)));
}

}  // namespace
}  // namespace rdmacomm::bench

int main(int argc, char** argv) {
  const rdmacomm::programs::Help help{
      .usage = "connection_rate [OPTION...]",
      .purpose =
          "Connects many clients to one server in another process, and prints the time and the memory that this takes.",
      .groups = {{"Options",
                  {{"clients", "N"},
                   {"threads", "N"},
                   {"sessions", ""},
                   {"least", "RATE"},
                   {"depth", "N"},
                   {"on", "DEVICE"}}}}};
  if (const auto ended = rdmacomm::programs::start(argc, argv, help)) return *ended;
  return rdmacomm::bench::run();
}
