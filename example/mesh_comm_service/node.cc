#include "mesh_comm_service/node.h"

#include <sys/epoll.h>

#include <algorithm>
#include <random>
#include <utility>

#include "mesh_comm_service/process_figures.h"

namespace rdmacomm::mesh {
namespace {

constexpr std::chrono::milliseconds kLookEvery{20};

std::uint64_t random_number() {
  std::random_device random;
  return std::uint64_t{random()} << 32U | random();
}

}  // namespace

Node::Node(NodeOptions options) : options_(std::move(options)) {}

Status Node::run() {
  Status opened = open();
  if (opened.ok()) loop();
  if (!opened.ok()) outcome_ = opened;
  if (connections_) connections_->stop();
  for (Peer& peer : peers_) end_life(peer);
  return outcome_;
}

Status Node::open() {
  auto events = NodeEvents::create();
  if (!events) return events.status();
  events_ = std::move(*events);
  auto descriptors = DescriptorSet::create();
  if (!descriptors) return descriptors.status();
  descriptors_ = std::move(*descriptors);
  // Level-triggered: pending events are taken after each wait.
  if (Status added = descriptors_->add(events_->fd(), EPOLLIN, [](std::uint32_t) {}); !added.ok()) return added;

  const Introduction self{.rank = static_cast<std::uint32_t>(options_.rank),
                          .nodes = static_cast<std::uint32_t>(options_.nodes),
                          .incarnation = random_number(),
                          .terms = options_.terms};
  connections_ = std::make_unique<Connections>(
      ConnectionParts{.self = self,
                      .session = options_.connection.session,
                      .adapter = options_.connection.adapter,
                      .modes = options_.modes,
                      .events = events_.get(),
                      .clock = &clock_,
                      .moment = [this](Introduction& introduction) { tell_moment(introduction); }});
  if (Status listening = connections_->listen(options_.listen); !listening.ok()) return listening;
  const auto cluster = options_.find_cluster(connections_->port());
  if (!cluster) return cluster.status();
  result_.address = (*cluster)[static_cast<std::size_t>(options_.rank)].to_text();
  began_ = std::chrono::steady_clock::now();
  // To reach a node, and to be reached by it, may each take that long.
  connected_by_ = Deadline::after(2 * options_.connect_timeout);
  for (int rank = 0; rank < options_.nodes; ++rank) {
    if (rank != options_.rank) peers_.push_back({.rank = rank, .address = (*cluster)[static_cast<std::size_t>(rank)]});
  }
  for (Peer& peer : peers_) connect_to(peer);
  return {};
}

void Node::loop() {
  while (phase_ != Phase::kOver) {
    descriptors_->wait(Deadline::after(kLookEvery));
    for (NodeEvent& event : events_->take()) handle(std::move(event));
    read_mail();
    look_at_troubles();
    if (phase_ != Phase::kOver) advance();
  }
}

/// Fills in the current state for a new peer. Runs on threads of the sessions.
void Node::tell_moment(Introduction& self) const {
  self.running = running_.load(std::memory_order_acquire);
  const std::uint64_t until = until_ticks_.load(std::memory_order_acquire);
  const std::uint64_t now = clock_.now();
  if (self.running && until > now) self.remaining_us = static_cast<std::uint64_t>(clock_.ns(until - now) / 1e3);
}

void Node::fail(const Status& why) {
  if (outcome_.ok()) outcome_ = why;
  phase_ = Phase::kOver;
}

void Node::advance() {
  if (phase_ == Phase::kConnecting) finish_connecting();
  if (phase_ == Phase::kRunning) look_at_traffic();
  if (phase_ == Phase::kClosing) look_at_results();
}

// Connecting ----------------------------------------------------------------------------------------------------------

void Node::finish_connecting() {
  look_for_the_right_ones();
  const bool late = connected_by_.passed();
  for (Peer& peer : peers_) {
    if (late && peer.state == Peer::State::kAwaited && !peer.has_live_endpoint())
      lose(peer, "has not connected to this node in time");
  }
  if (phase_ == Phase::kOver ||
      !std::ranges::all_of(peers_, [](const Peer& peer) { return peer.is_gone() || peer.is_linked(); })) {
    return;
  }
  if (setup_us_ == 0) {
    setup_us_ = static_cast<std::uint64_t>(
        std::chrono::duration_cast<std::chrono::microseconds>(std::chrono::steady_clock::now() - began_).count());
  }
  for_each_here([this](Peer& peer) {
    if (!std::exchange(peer.now.told_ready, true)) send(peer, mail_of(MailKind::kReady));
  });
  if (all_here([](const Peer& peer) { return peer.now.ready; })) begin_traffic();
}

// Traffic -------------------------------------------------------------------------------------------------------------

void Node::begin_traffic() {
  std::uint64_t duration_us = options_.terms.duration_us;
  for_each_here([&](const Peer& peer) {  // nodes that join later end with the others
    if (peer.now.introduction->running) duration_us = std::min(duration_us, peer.now.introduction->remaining_us);
  });
  until_ticks_.store(clock_.now() + clock_.ticks(std::chrono::microseconds(duration_us)), std::memory_order_release);
  running_.store(true, std::memory_order_release);
  cpu_us_at_start_ = cpu_time_us();
  phase_ = Phase::kRunning;
  for_each_here([this](Peer& peer) { begin_traffic_to(peer); });
}

void Node::begin_traffic_to(Peer& peer) {
  if (!std::exchange(peer.now.told_ready, true)) send(peer, mail_of(MailKind::kReady));
  peer.now.outbound->start(until_ticks_.load(std::memory_order_relaxed));
}

void Node::look_at_traffic() {
  const bool time_over =
      options_.terms.duration_us != 0 && clock_.now() >= until_ticks_.load(std::memory_order_relaxed);
  for_each_here([&](Peer& peer) {
    if (time_over) peer.now.outbound->look_at_clock();
    settle(peer);
  });
  if (phase_ != Phase::kRunning) return;
  const bool awaiting =
      std::ranges::any_of(peers_, [](const Peer& peer) { return peer.state == Peer::State::kAwaited; });
  if (!awaiting && all_here([](const Peer& peer) { return peer.now.checked && peer.now.told_checked; }))
    begin_closing();
}

/// Both nodes of a pair exchange their counts in both directions.
void Node::settle(Peer& peer) {
  Peer::Life& life = peer.now;
  if (!life.told_finished && life.outbound->finished()) {
    const OutboundFigures sent = life.outbound->figures();
    life.told_finished = true;
    Mail mail = mail_of(MailKind::kFinished);
    mail.tally.messages = sent.messages;
    mail.tally.bytes = sent.bytes;
    send(peer, mail);
  }
  if (!life.finished || life.told_checked) return;
  if (!life.inbound->has_all()) {
    if (!life.arrives_by.passed()) return;
    return fail(make_error(Errc::kTimeout, "node " + std::to_string(peer.rank) + " reports that it has sent " +
                                               std::to_string(life.finished->messages) + " messages; " +
                                               std::to_string(life.inbound->tally().messages) + " have arrived"));
  }
  life.told_checked = true;
  Mail mail = mail_of(MailKind::kChecked);
  mail.tally = life.inbound->tally();
  send(peer, mail);
}

// The end -------------------------------------------------------------------------------------------------------------

void Node::begin_closing() {
  connections_->refuse_new_connections();
  phase_ = Phase::kClosing;
  result_ = measured();
  for_each_here([this](const Peer& peer) { note_corruption(check_traffic(options_.rank, peer)); });
  if (outcome_.ok()) outcome_ = corruption_;
  options_.on_result(result_);
}

/// The first corruption is this node's outcome if no other error ends the run. It is returned at the end, because the
/// others continue.
void Node::note_corruption(const Status& found) {
  if (corruption_.ok()) corruption_ = found;
}

NodeResult Node::measured() const {
  const ProcessFigures process = process_figures();
  NodeResult result;
  result.rank = static_cast<std::uint32_t>(options_.rank);
  result.address = result_.address;
  result.pid = process.pid;
  result.setup_us = setup_us_;
  result.cpu_us = cpu_time_us() - cpu_us_at_start_;
  result.memory_bytes = process.memory_bytes;
  result.peak_memory_bytes = process.peak_memory_bytes;
  result.threads = process.threads;
  for (const Peer& peer : peers_) {
    PeerResult figures = figures_of(peer);
    figures.lost = peer.state == Peer::State::kLost;
    result.elapsed_ns = std::max(result.elapsed_ns, figures.elapsed_ns);
    result.peers.push_back(figures);
    if (peer.past) result.latency_ns.add(peer.past->latency_ns);
    if (peer.state != Peer::State::kHere) continue;
    result.latency_ns.add(peer.now.outbound->figures().latency_ns);
    result.queue_pairs += 2;  // one channel in each direction
  }
  return result;
}

/// The node with the lowest rank that is here collects the results; the others wait for its kOver. If it is lost, the
/// next one collects.
void Node::look_at_results() {
  int collector = options_.rank;
  for_each_here([&](const Peer& peer) { collector = std::min(collector, peer.rank); });
  if (collector != options_.rank) {
    if (std::exchange(result_sent_to_, collector) == collector) return;
    Mail mail = mail_of(MailKind::kResult);
    mail.result = result_;
    return send(*find(collector), mail);
  }
  if (!all_here([](const Peer& peer) { return peer.now.result.has_value(); })) return;
  std::vector<NodeResult> results = {result_};
  for_each_here([&](Peer& peer) { results.push_back(*peer.now.result); });
  std::ranges::sort(results, {}, &NodeResult::rank);
  const Status reported = options_.on_results(results);
  if (!reported.ok() && outcome_.ok()) outcome_ = reported;
  for_each_here([this](Peer& peer) { send(peer, mail_of(MailKind::kOver)); });
  phase_ = Phase::kOver;
}

Peer* Node::find(int rank) {
  const auto found = std::ranges::find(peers_, rank, &Peer::rank);
  return found == peers_.end() ? nullptr : &*found;
}

bool Node::all_here(bool (*is)(const Peer&)) const {
  return std::ranges::all_of(peers_, [is](const Peer& peer) { return peer.state != Peer::State::kHere || is(peer); });
}

}  // namespace rdmacomm::mesh
