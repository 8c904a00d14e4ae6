#include "lat_bw_benchmark/server.h"

#include <algorithm>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "lat_bw_benchmark/part.h"
#include "lat_bw_benchmark/session_parts.h"
#include "rdmacomm/session.h"
#include "support/arrivals.h"
#include "support/client_domain.h"
#include "support/client_report.h"
#include "support/cpu.h"
#include "support/guest_places.h"

namespace rdmacomm::benchmark {
namespace {

/// The state of one client on the server.
struct Job {
  std::string address = {};
  std::shared_ptr<programs::Guest> guest = nullptr;
  Plan plan = {};
  Reply reply = {};
  std::unique_ptr<Workspace> workspace = nullptr;
};

/// The CPU to measure on: not the client's CPU if both run on one machine.
int choose_cpu(const Plan& plan) {
  for (const int cpu : programs::allowed_cpus()) {
    if (plan.machine_id != programs::machine_id() || cpu != plan.client_cpu) return cpu;
  }
  return -1;
}

/// Creates a job for each plan that it accepts, one at a time.
class BenchmarkServer final : public programs::DeliveringHooks {
 public:
  /// Only one client at a time is measured; it gets all the memory.
  BenchmarkServer(const ServerOptions& options, const ModesAndAdapter& connection)
      : places_({.guests = 1, .guests_of_a_host = 1, .rest = options.rest}),
        place_patience_(options.place_patience),
        connection_(connection) {}

  Status init_session(const RDMADevice& device) override {
    device_ = device;
    return {};
  }

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    auto plan = unpack<Plan>(peer.private_data);
    if (!plan) return plan.error();
    if (Status fits = check_limits(device_, *plan); !fits.ok()) return fits;
    auto guest = places_.admit(peer.address, Workspace::bytes_for(*plan), Deadline::after(place_patience_));
    if (!guest) return guest.error();
    const Status apart = programs::give_own_domain(hca, device_);
    auto workspace = apart.ok() ? Workspace::create(device_, *plan, hca.domain) : apart.error();
    if (!workspace) {
      places_.remove(peer.address);
      return workspace.error();
    }
    const std::lock_guard lock(mutex_);
    job_ = Job{.address = peer.address,
               .guest = std::move(*guest),
               .plan = std::move(*plan),
               .workspace = std::move(*workspace)};
    job_->reply = {.device = device_.to_text(), .cpu = choose_cpu(job_->plan)};
    fit_hca(hca, connection_, job_->plan, *job_->workspace);
    hca.private_data = pack(job_->reply);
    return {};
  }

  Status post_connecting(const EndPoint& endpoint) override {
    if (Status ready = DeliveringHooks::post_connecting(endpoint); !ready) return ready;
    Job* const job = job_of(endpoint);
    if (job == nullptr) return make_error(Errc::kWrongState, "the plan of " + endpoint.peer() + " is not known");
    places_.set_dismissal(*job->guest, [weak = WeakEndPoint(endpoint)](const Error& why) {
      if (const EndPoint held = weak.lock()) held.abort(why);
    });
    return {};
  }

  void on_established(const EndPoint& endpoint) override { arrivals.put(endpoint); }

  bool on_connect_failed(const std::string& peer, const Error& /*why*/) override {
    remove_client(peer.substr(0, peer.find(" (")));
    return false;
  }

  /// The job of a connected client; no other client has a job before job_done().
  [[nodiscard]] Job* job_of(const EndPoint& endpoint) {
    const std::lock_guard lock(mutex_);
    return job_ && job_->address == endpoint.peer_address() ? &*job_ : nullptr;
  }
  /// Frees the memory of the job. Then the next client can be served.
  void job_done(const EndPoint& endpoint) { remove_client(endpoint.peer_address()); }
  /// As GuestPlaces::explained().
  [[nodiscard]] Status explained(const Job& job, Status outcome) const {
    return places_.explained(*job.guest, std::move(outcome));
  }
  /// Refuses all clients that wait for their turn.
  void close_places() { places_.close(); }

  programs::Arrivals arrivals;

 private:
  void remove_client(const std::string& address) {
    {
      const std::lock_guard lock(mutex_);
      if (job_ && job_->address == address) job_.reset();
    }
    places_.remove(address);
  }

  RDMADevice device_;
  programs::GuestPlaces places_;
  const std::chrono::milliseconds place_patience_;
  const ModesAndAdapter connection_;
  std::mutex mutex_;
  std::optional<Job> job_;  // of the client that has the place
};

/// Executes the client's orders, until it is done.
class Follower {
 public:
  /// options  its timeouts
  Follower(const EndPoint& endpoint, Job& job, const programs::TickClock& clock, bool yield_when_idle,
           const ServerOptions& options)
      : lane_({.endpoint = endpoint,
               .workspace = *job.workspace,
               .plan = job.plan,
               .clock = clock,
               .side = Lane::Side::kServer,
               .yield_when_idle = yield_when_idle,
               .guest = job.guest.get(),
               .still = options.unseen}),
        workspace_(*job.workspace),
        guest_(*job.guest),
        plan_(job.plan),
        cells_(job.plan.cells()),
        thinking_(options.thinking),
        unseen_(options.unseen) {}

  Status follow() {
    for (;;) {
      const auto bytes = lane_.endpoint().receive_message(Deadline::never());
      if (!bytes) return bytes.error();
      guest_.set_working(true);
      guest_.note_progress();
      if (unpack<Done>(*bytes)) return {};
      const auto order = unpack<Order>(*bytes);
      if (!order) return order.error();
      if (!std::exchange(ordered_, true)) workspace_.touch();
      if (Status done = carry_out(*order); !done.ok()) return lane_.with_cause(done);
    }
  }

  /// Whether the client has sent an order.
  [[nodiscard]] bool ordered() const noexcept { return ordered_; }

 private:
  /// From now on the server waits for the client. For up to `most` the client may do work that the server cannot see.
  /// Also records the server's own work until now as progress.
  void pause(std::chrono::milliseconds most) {
    guest_.note_progress();
    guest_.set_pause(most);
    guest_.set_working(false);
  }
  /// The longest time of `count` messages on a slow network: a millisecond for each, and the time of its bytes. The
  /// client's plan is not trusted, so the result is at most ServerOptions::unseen.
  [[nodiscard]] std::chrono::milliseconds time_for(std::uint64_t count, const Order& order) const {
    const std::chrono::milliseconds each_waits(count);
    return std::min(unseen_, each_waits + programs::time_on_slow_network(count * cells_[order.cell].bytes));
  }
  /// The longest duration of a part that the server cannot see: four times the plan's duration plus the operations in
  /// flight, or the time of its iterations.
  [[nodiscard]] std::chrono::milliseconds longest(const Order& order) const {
    if (plan_.duration_us == 0) return time_for(order.iterations, order);
    return std::min(unseen_, std::chrono::milliseconds(4 * plan_.duration_us / 1000) + longest_step(order));
  }
  /// The longest time without progress in a part that the server takes part in: that of all operations in flight, both
  /// ways.
  [[nodiscard]] std::chrono::milliseconds longest_step(const Order& order) const {
    return time_for(std::uint64_t{2} * std::min(order.iterations, plan_.queue_depth), order);
  }
  Status carry_out(const Order& order) {
    if (order.cell >= cells_.size())
      return make_error(Errc::kBadMessage, "the client has ordered a measurement that its plan does not have");
    const EndPoint& endpoint = lane_.endpoint();
    const auto part = make_part(lane_, cells_[order.cell], order, nullptr);
    if (Status ready = part->prepare(); !ready.ok()) return ready;
    pause(longest_step(order));
    if (Status sent = endpoint.send_message(pack(Ready{}), deadline()); !sent.ok()) return sent;
    if (Status done = part->run(); !done.ok()) return done;
    pause(thinking_ + longest(order));
    const auto finish = endpoint.receive_message(Deadline::never());
    if (!finish) return finish.error();
    guest_.set_working(true);
    if (const auto is_finish = unpack<Finish>(*finish); !is_finish) return is_finish.error();
    part->finish();
    pause(thinking_);  // between two orders a client computes its statistics, which can take seconds
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
  Workspace& workspace_;
  programs::Guest& guest_;
  const Plan& plan_;
  const std::vector<Cell> cells_;
  const std::chrono::milliseconds thinking_;
  const std::chrono::milliseconds unseen_;
  bool ordered_ = false;
};

/// The result of one run. A value.
struct Run {
  Status outcome = {};
  bool ordered = false;  ///< the client has sent an order; else this does not count as a run
};

/// Serves one client, from the established connection to its end.
Run serve(const EndPoint& endpoint, Job& job, const programs::TickClock& clock, bool yield_when_idle,
          const ServerOptions& options) {
  if (Status fits = check_workspace(endpoint, job.plan); !fits.ok()) return {.outcome = fits};
  if (job.reply.cpu >= 0) {
    if (Status pinned = programs::pin_this_thread(job.reply.cpu); !pinned.ok()) return {.outcome = pinned};
  }
  Follower follower(endpoint, job, clock, yield_when_idle, options);
  Run run{.outcome = follower.follow()};
  run.ordered = follower.ordered();
  // Sends the reason to the client, unless it has disconnected.
  if (!run.outcome.ok() && endpoint.alive()) endpoint.abort(run.outcome.error());
  return run;
}

}  // namespace

Status run_server(const ServerOptions& options) {
  const auto hooks =
      std::make_shared<BenchmarkServer>(options, ModesAndAdapter{options.connection.adapter, options.modes});
  const ServerSession session(options.connection.session, hooks);
  if (Status started = session.start(); !started.ok()) return started;
  options.listening(session.port());
  const programs::TickClock clock;
  programs::ClientReport report;
  const bool one_cpu = programs::two_cpus().second < 0;
  for (;;) {
    const auto endpoint = hooks->arrivals.next();
    while (session.accept(Deadline::after({}))) {  // drains the list, which also contains served endpoints
    }
    Job* const job = hooks->job_of(endpoint);
    Run run = job != nullptr
                  ? serve(endpoint, *job, clock, one_cpu, options)
                  : Run{.outcome = make_error(Errc::kWrongState, "the plan of " + endpoint.peer() + " is not known")};
    if (job != nullptr) run.outcome = hooks->explained(*job, run.outcome);
    Status closed = endpoint.close();
    hooks->job_done(endpoint);
    if (run.outcome.ok()) run.outcome = closed;
    if (!options.connection.keep_serving && run.ordered) {
      hooks->close_places();
      return run.outcome;
    }
    if (run.outcome.ok()) {
      report.served(endpoint.peer());
    } else {
      report.failed(
          endpoint.peer(),
          run.outcome.message() +
              (options.connection.keep_serving ? "" : "; it had not begun a measurement; waiting for the next client"));
    }
  }
}

}  // namespace rdmacomm::benchmark
