#include "lat_bw_benchmark/client.h"

#include <iostream>

#include "lat_bw_benchmark/cell_runner.h"
#include "lat_bw_benchmark/results.h"
#include "lat_bw_benchmark/session_parts.h"
#include "rdmacomm/session.h"
#include "support/cpu.h"
#include "support/result_file.h"

namespace rdmacomm::benchmark {
namespace {

/// Sends the plan to the server, and the location of the memory, before queue pairs exist.
class BenchmarkClient final : public programs::DeliveringHooks {
 public:
  BenchmarkClient(const ModesAndAdapter& connection, const Plan& plan, Workspace& workspace)
      : connection_(connection), plan_(plan), workspace_(workspace) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& /*peer*/) override {
    fit_hca(hca, connection_, plan_, workspace_);
    hca.private_data = pack(plan_);
    return {};
  }

 private:
  const ModesAndAdapter connection_;
  const Plan& plan_;
  Workspace& workspace_;
};

/// Finds out before the measurement, not after it, that the file cannot be written.
Status check_json(const std::string& path) {
  if (path.empty()) return {};
  const Status writable = programs::check_replaceable(path);
  return writable.ok() ? Status() : make_error(writable.code(), "--json: " + writable.error().context);
}

RunInfo describe(const EndPoint& endpoint, const Reply& reply, int cpu, const programs::TickClock& clock) {
  const RDMAChannel& channel = endpoint.channel();
  RunInfo info;
  info.client = programs::end_text(endpoint.device().to_text(), channel.address());
  info.server = programs::end_text(reply.device, channel.remote_address().value_or(QpAddress{}));
  info.path_mtu_bytes = channel.path_mtu_bytes();
  info.client_cpu = cpu;
  info.server_cpu = reply.cpu;
  info.clock_cost_ns = clock.cost_ns();
  return info;
}

/// Measures everything on an established connection.
Status measure(const EndPoint& endpoint, Workspace& workspace, const ClientOptions& options) {
  const Plan& plan = options.plan;
  if (Status fits = check_workspace(endpoint, plan); !fits.ok()) return fits;
  const auto reply = unpack<Reply>(endpoint.peer_private_data());
  if (!reply) return reply.error();

  const programs::TickClock clock;
  const int second_cpu = programs::two_cpus().second;
  if (plan.client_cpu >= 0) {
    if (Status pinned = programs::pin_this_thread(plan.client_cpu); !pinned.ok()) return pinned;
  }
  const auto machine = programs::MachineBaseline::create(clock, reply->cpu >= 0 ? reply->cpu : second_cpu);
  if (!machine) return machine.error();

  Lane lane({.endpoint = endpoint,
             .workspace = workspace,
             .plan = plan,
             .clock = clock,
             .side = Lane::Side::kClient,
             .yield_when_idle = second_cpu < 0});
  CellRunner runner(lane, **machine, options.longest_part);
  if (Status begun = runner.begin(); !begun.ok()) return begun;
  ResultReport report(std::cout, plan);
  report.begin(describe(endpoint, *reply, plan.client_cpu, clock));
  for (std::uint32_t index = 0; index < plan.cells().size(); ++index) {
    const auto result = runner.run(index);
    if (!result) return result.error();
    report.add(*result);
  }
  if (Status sent = endpoint.send_message(pack(Done{}), Deadline::after(std::chrono::seconds(10))); !sent.ok())
    return sent;
  report.end(**machine);
  return options.json_path.empty() ? Status() : report.write_json(options.json_path, **machine);
}

}  // namespace

Status run_client(ClientOptions options) {
  if (Status writable = check_json(options.json_path); !writable.ok()) return writable;
  const SessionOptions& asked = options.connection.session;
  auto opened = open_device(
      asked.device,
      {.address = asked.address, .connector = asked.connector, .find_by = Deadline::after(asked.tcp.connect_timeout)});
  if (!opened) return opened.error();
  const RDMADevice device = std::move(*opened);
  if (Status fits = check_limits(device, options.plan); !fits.ok()) return fits;
  options.plan.machine_id = programs::machine_id();
  options.plan.client_cpu = programs::two_cpus().first;
  const auto workspace = Workspace::create(device, options.plan);
  if (!workspace) return workspace.error();
  (*workspace)->touch();

  SessionOptions session_options = options.connection.session;
  session_options.shared_device = device;
  const ClientSession session(
      session_options, std::make_shared<BenchmarkClient>(ModesAndAdapter{options.connection.adapter, options.modes},
                                                         options.plan, **workspace));
  const auto endpoint = session.connect();
  if (!endpoint) return endpoint.error();
  Status outcome = measure(*endpoint, **workspace, options);
  Status closed = endpoint->close();
  return outcome.ok() ? closed : outcome;
}

}  // namespace rdmacomm::benchmark
