#include "lat_bw_benchmark/server.h"

#include <iostream>
#include <mutex>
#include <optional>

#include "lat_bw_benchmark/part.h"
#include "lat_bw_benchmark/session_parts.h"
#include "rdmacomm/session/server_session.h"
#include "support/cpu.h"

namespace rdmacomm::benchmark {
namespace {

/// What one client needs of the server.
struct Job {
  Plan plan = {};
  Reply reply = {};
  std::unique_ptr<Workspace> workspace = nullptr;
};

/// Where to measure: not on the client's CPU, where both run on one machine.
int choose_cpu(const Plan& plan) {
  for (const int cpu : programs::allowed_cpus()) {
    if (plan.machine_id != programs::machine_id() || cpu != plan.client_cpu) return cpu;
  }
  return -1;
}

/// Makes a job of each plan that it accepts, one at a time.
class BenchmarkServer final : public programs::DeliveringSession<ServerSession> {
 public:
  BenchmarkServer(SessionOptions options, const ModesAndAdapter& connection)
      : DeliveringSession(std::move(options)), connection_(connection) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    auto plan = unpack<Plan>(peer.private_data);
    if (!plan) return plan.error();
    if (Status fits = check_limits(*device(), *plan); !fits.ok()) return fits;
    const std::lock_guard lock(mutex_);
    if (!client_.empty()) {
      return make_error(std::make_error_code(std::errc::device_or_resource_busy),
                        "this server is busy with " + client_);
    }
    auto workspace = Workspace::create(*device(), *plan);
    if (!workspace) return workspace.error();
    client_ = peer.address;
    job_ = Job{.plan = std::move(*plan), .reply = {}, .workspace = std::move(*workspace)};
    job_->reply = {.device = device()->to_text(), .cpu = choose_cpu(job_->plan)};
    fit_hca(hca, connection_, job_->plan, *job_->workspace);
    hca.private_data = pack(job_->reply);
    return {};
  }

  void on_connect_failed(const std::string& peer, const Error& why) override {
    ServerSession::on_connect_failed(peer, why);
    const std::lock_guard lock(mutex_);
    if (!client_.empty() && peer.starts_with(client_)) forget();
  }

  /// The job of the endpoint that was established.
  [[nodiscard]] Job* job() {
    const std::lock_guard lock(mutex_);
    return job_ ? &*job_ : nullptr;
  }
  /// Frees the memory of the job; the next client may come.
  void job_done() {
    const std::lock_guard lock(mutex_);
    forget();
  }

 private:
  void forget() {
    client_.clear();
    job_.reset();
  }

  const ModesAndAdapter connection_;
  std::mutex mutex_;
  std::string client_;  // whom job_ is for
  std::optional<Job> job_;
};

/// Does what the client orders, until it is done.
class Follower {
 public:
  Follower(EndPoint& endpoint, programs::Delivery& delivery, Job& job, const programs::TickClock& clock,
           bool yield_when_idle)
      : lane_({.endpoint = endpoint,
               .delivery = delivery,
               .workspace = *job.workspace,
               .plan = job.plan,
               .clock = clock,
               .side = Lane::Side::kServer,
               .yield_when_idle = yield_when_idle}),
        cells_(job.plan.cells()) {}

  Status follow() {
    for (;;) {
      const auto bytes = lane_.endpoint().receive_message(Deadline::never());
      if (!bytes) return bytes.error();
      if (unpack<Done>(*bytes)) return {};
      const auto order = unpack<Order>(*bytes);
      if (!order) return order.error();
      if (Status done = carry_out(*order); !done.ok()) return lane_.with_cause(done);
    }
  }

 private:
  Status carry_out(const Order& order) {
    if (order.cell >= cells_.size())
      return make_error(Errc::kBadMessage, "the client orders a cell that its plan has not");
    EndPoint& endpoint = lane_.endpoint();
    const auto part = make_part(lane_, cells_[order.cell], order, nullptr);
    if (Status ready = part->prepare(); !ready.ok()) return ready;
    if (Status sent = endpoint.send_message(pack(Ready{}), deadline()); !sent.ok()) return sent;
    if (Status done = part->run(); !done.ok()) return done;
    const auto finish = endpoint.receive_message(Deadline::never());
    if (!finish) return finish.error();
    if (const auto is_finish = unpack<Finish>(*finish); !is_finish) return is_finish.error();
    part->finish();
    const bool own_direction = cells_[order.cell].metric == Metric::kBothWays;
    const Verifier& verifier = part->verifier();
    const Report report{.elapsed_ns = own_direction ? elapsed_ns(*part) : 0,
                        .verified = verifier.checked(),
                        .corrupt = verifier.corrupt(),
                        .first_corruption = verifier.first_corruption()};
    return endpoint.send_message(pack(report), deadline());
  }

  [[nodiscard]] std::uint64_t elapsed_ns(const Part& part) const {
    return static_cast<std::uint64_t>(lane_.clock().ns(part.elapsed_ticks()));
  }
  static Deadline deadline() { return Deadline::after(std::chrono::seconds(60)); }

  Lane lane_;
  const std::vector<Cell> cells_;
};

/// One client's run, from the established connection to its end.
Status serve(EndPoint& endpoint, programs::Delivery& delivery, Job& job, const programs::TickClock& clock,
             bool yield_when_idle) {
  if (Status fits = check_workspace(endpoint, job.plan); !fits.ok()) return fits;
  if (job.reply.cpu >= 0) {
    if (Status pinned = programs::pin_this_thread(job.reply.cpu); !pinned.ok()) return pinned;
  }
  Status outcome = Follower(endpoint, delivery, job, clock, yield_when_idle).follow();
  // The client is told why, unless it has gone before.
  if (!outcome.ok() && endpoint.alive()) endpoint.connector().refuse(outcome.error());
  return outcome;
}

}  // namespace

Status run_server(const ServerOptions& options) {
  const auto session = make_session<BenchmarkServer>(options.connection.session,
                                                     ModesAndAdapter{options.connection.adapter, options.modes});
  if (Status started = session->start(); !started.ok()) return started;
  options.listening(session->port());
  const programs::TickClock clock;
  const bool one_cpu = programs::two_cpus().second < 0;
  for (;;) {
    const auto endpoint = session->wait_for_endpoint(Deadline::never());
    if (!endpoint) return endpoint.error();
    Job* job = session->job();
    Status outcome = job != nullptr ? serve(**endpoint, session->delivery, *job, clock, one_cpu)
                                    : make_error(Errc::kWrongState, "no plan for " + (*endpoint)->peer());
    Status closed = (*endpoint)->close();
    session->delivery.forget(**endpoint);
    session->job_done();
    if (outcome.ok()) outcome = closed;
    if (!options.connection.keep_serving) return outcome;
    if (outcome.ok()) {
      std::cout << "served " << (*endpoint)->peer() << std::endl;
    } else {
      std::cerr << programs::program_name() << ": " << outcome.message() << std::endl;
    }
  }
}

}  // namespace rdmacomm::benchmark
