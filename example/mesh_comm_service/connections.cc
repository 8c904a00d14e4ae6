#include "mesh_comm_service/connections.h"

#include <algorithm>
#include <system_error>
#include <utility>

#include "base/logging.h"
#include "rdmacomm/session.h"
#include "support/client_domain.h"

namespace rdmacomm::mesh {
namespace {

/// How long a process must have been silent before another process may take its place, as after a restart of its host.
constexpr std::chrono::seconds kSilentBeforeSuccessor{3};

/// Each new or ended endpoint is an event for the node's own thread. While more events than this are unread, no
/// endpoint is accepted.
constexpr std::size_t kMaxUnread = 64;
constexpr const char* kHasMuchToDo = "the node has not yet processed all nodes that have connected and disconnected";

/// Returns the peer's introduction, if the peer belongs to this mesh.
Result<Introduction> check_introduction(const Introduction& self, std::span<const std::byte> private_data) {
  auto peer = Introduction::decode(private_data);
  if (!peer) return peer.error();
  if (Status fits = self.check_fits(*peer); !fits.ok()) return fits.error();
  return peer;
}

/// The identity of a handshake: the address of its connection. In the text that on_connect_failed() gets, that is the
/// part before the brackets.
std::string handshake_of(const std::string& peer_text) {
  return peer_text.substr(0, peer_text.find(" ("));
}

/// Whether the endpoint's peer is the process with this introduction.
bool is_life(const EndPoint& endpoint, const Introduction& introduction) {
  const auto present = Introduction::decode(endpoint.peer_private_data());
  return present && present->incarnation == introduction.incarnation;
}

}  // namespace

/// The server session: receives the traffic of all other nodes.
class Connections::Server final : public LinkHooks {
 public:
  explicit Server(Connections& all) : all_(all) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    const auto link = all_.admit(peer);
    if (!link) return link.error();
    {
      const std::lock_guard lock(mutex_);
      admitted_[peer.address] = *link;
    }
    if (Status apart = programs::give_own_domain(hca, all_.device_); !apart.ok()) return apart;
    if (Status ready = (*link)->prepare(all_.device_, hca.domain); !ready.ok()) return ready;
    all_.fit(hca, **link);
    Introduction self = all_.parts_.self;
    all_.parts_.moment(self);
    hca.private_data = self.encode();
    return {};
  }
  Status post_connecting(const EndPoint& endpoint) override {
    const std::lock_guard lock(mutex_);
    return all_.attach(endpoint, *admitted_.at(endpoint.peer_address()));
  }
  void on_established(const EndPoint& endpoint) override {
    const std::shared_ptr<Link> link = all_.link_of(endpoint);
    (void)take_admitted(endpoint.peer_address());
    all_.parts_.events->put({.kind = NodeEvent::Kind::kArrived,
                             .rank = link->peer(),
                             .link = link,
                             .endpoint = endpoint.alive() ? endpoint : EndPoint()});
  }
  void on_disconnected(const EndPoint& endpoint, const Status& /*why*/) override { all_.ended(endpoint); }
  void on_ended(const EndPoint& endpoint, const Status& /*why*/) override { all_.drop(endpoint); }
  /// Failures of unknown peers are only logged. If a node of the mesh refused this one or ended, this node's client
  /// session gets the error.
  bool on_connect_failed(const std::string& peer, const Error& why) override {
    RDMACOMM_VLOG(1) << "no endpoint for " << peer << ": " << why.message();
    if (const auto link = take_admitted(handshake_of(peer))) all_.forget(*link);
    if (why.code != Errc::kIncompatiblePeer) return true;
    const auto line = [&] {
      const std::lock_guard lock(mutex_);
      return refusals_.line(handshake_of(peer), peer + ": " + why.context, programs::HostPace::Clock::now());
    }();
    if (line) all_.parts_.events->put({.kind = NodeEvent::Kind::kMisfit, .status = make_error(why.code, *line)});
    return true;
  }

 private:
  std::shared_ptr<Link> take_admitted(const std::string& handshake) {
    all_.handshake_is_over(handshake);
    const std::lock_guard lock(mutex_);
    const auto found = admitted_.extract(handshake);
    return found ? found.mapped() : nullptr;
  }

  Connections& all_;
  std::mutex mutex_;
  std::map<std::string, std::shared_ptr<Link>> admitted_;  // by handshake, while it is running
  programs::HostPace refusals_;
};

/// The client session for one other node.
class Connections::Client final : public LinkHooks {
 public:
  Client(Connections& all, int rank) : all_(all), rank_(rank) {}

  Status lazy_config_hca(HcaConfig& hca, const PeerInfo& peer) override {
    forget_link();  // the link of an attempt that has failed
    all_.know_host(peer.address);
    link_ = std::make_shared<Outbound>(all_.link_parts(rank_), *all_.parts_.clock);
    all_.keep(link_);
    if (Status ready = link_->prepare(all_.device_, hca.domain); !ready.ok()) return ready;
    all_.fit(hca, *link_);
    Introduction self = all_.parts_.self;
    all_.parts_.moment(self);
    hca.private_data = self.encode();
    return {};
  }
  Status post_connecting(const EndPoint& endpoint) override {
    const auto peer = check_introduction(all_.parts_.self, endpoint.peer_private_data());
    if (!peer) return peer.error();
    if (peer->rank == static_cast<std::uint32_t>(rank_)) return all_.attach(endpoint, *link_);
    return make_error(Errc::kIncompatiblePeer, endpoint.peer() + " is node " + std::to_string(peer->rank) +
                                                   ", and node " + std::to_string(rank_) +
                                                   " was expected: give the same list to all nodes");
  }
  void on_disconnected(const EndPoint& endpoint, const Status& /*why*/) override { all_.ended(endpoint); }
  void on_ended(const EndPoint& endpoint, const Status& /*why*/) override { all_.drop(endpoint); }

  // On the thread that connects:
  [[nodiscard]] std::shared_ptr<Outbound> take_link() noexcept { return std::exchange(link_, nullptr); }
  void forget_link() {
    if (const auto link = take_link()) all_.forget(*link);
  }

 private:
  Connections& all_;
  const int rank_;
  std::shared_ptr<Outbound> link_;  // of the endpoint that is being connected
};

/// A session with its hooks.
struct Connections::ClientParts {
  std::shared_ptr<Client> hooks;
  ClientSession session;
};

Connections::Connections(ConnectionParts parts)
    : parts_(std::move(parts)),
      pending_(PendingHandshakes::places_for(parts_.self.terms.block_bytes() * parts_.self.terms.depth)) {}

Connections::~Connections() {
  stop();
}

Status Connections::listen(const HostPort& at) {
  auto device =
      open_device(parts_.session.device, {.address = at, .is_server = true, .connector = parts_.session.connector});
  if (!device) return device.status();
  device_ = std::move(*device);
  if (Status able = parts_.self.terms.check(device_); !able.ok()) return able;
  SessionOptions options = parts_.session;
  options.shared_device = device_;
  options.address = at;
  // Two endpoints for each node, because a new one may replace an old one that is still ending. And the handshakes: the
  // running ones, and the same number that lost their place and are ending.
  options.max_endpoints = static_cast<int>(2 * parts_.self.nodes) + 2 * options.handshake_slots;
  options.max_endpoints_per_source = options.max_endpoints;  // all nodes may be on one host
  know_host(at.host);                                        // the nodes on this host
  server_.emplace(options, std::make_shared<Server>(*this));
  return server_->start();
}

std::uint16_t Connections::port() const {
  return server_->port();
}

void Connections::connect(int rank, const HostPort& to) {
  know_host(to.host);
  std::thread& thread = connecting_[rank];
  if (thread.joinable()) thread.join();
  std::unique_ptr<ClientParts>& client = clients_[rank];
  if (!client) {
    SessionOptions options = parts_.session;
    options.shared_device = device_;
    options.queues_of = &*server_;  // shared queues are shared by the whole node
    auto hooks = std::make_shared<Client>(*this, rank);
    client = std::make_unique<ClientParts>(ClientParts{.hooks = hooks, .session = ClientSession(options, hooks)});
  }
  try {
    thread = std::thread([this, &client = *client, rank, to] { connect_now(client, rank, to); });
  } catch (const std::system_error& error) {  // no more threads for this user
    parts_.events->put({.kind = NodeEvent::Kind::kNotReached,
                        .rank = rank,
                        .status = make_error(error.code(), "cannot start a thread that connects")});
  }
}

void Connections::connect_now(ClientParts& client, int rank, const HostPort& to) {
  auto endpoint = client.session.connect(to);
  NodeEvent event{.kind = NodeEvent::Kind::kNotReached, .rank = rank};
  if (endpoint) {
    {
      const std::lock_guard lock(mutex_);
      reached_[rank] = *endpoint;
    }
    event.kind = NodeEvent::Kind::kConnected;
    event.link = client.hooks->take_link();
    event.endpoint = std::move(*endpoint);
  } else {
    event.status = endpoint.status();
    client.hooks->forget_link();
  }
  parts_.events->put(std::move(event));
}

void Connections::keep(std::shared_ptr<Link> link) {
  const std::lock_guard lock(mutex_);
  links_.push_back(std::move(link));
}

std::size_t Connections::links() const {
  const std::lock_guard lock(mutex_);
  return links_.size();
}

/// No endpoint was created for the link. If one exists, or is being created, its requests may still use the link; then
/// ended() or drop() removes the link.
void Connections::forget(Link& link) {
  const std::lock_guard lock(mutex_);
  if (attached_.contains(&link)) return;
  std::erase_if(links_, [&](const auto& each) { return each.get() == &link; });
}

/// Called in on_ended(), which is the last hook of an endpoint for which attach() was called. For an established
/// endpoint, ended() was called before.
void Connections::drop(const EndPoint& endpoint) {
  if (endpoint.context<Link>() == nullptr) return;  // refused before it had a link
  const std::shared_ptr<Link> link = link_of(endpoint);
  {
    const std::lock_guard lock(mutex_);
    if (attached_.erase(link.get()) == 0) return;
    std::erase(links_, link);
  }
  link->release();
}

void Connections::know_host(const std::string& address) {
  const std::lock_guard lock(mutex_);
  pending_.know_host(address);
}

void Connections::handshake_is_over(const std::string& address) {
  const std::lock_guard lock(mutex_);
  pending_.remove(address);
  place_may_be_free_.notify_all();
}

void Connections::refuse_new_connections() {
  const std::lock_guard lock(mutex_);
  open_.store(false, std::memory_order_relaxed);
  place_may_be_free_.notify_all();
}

/// Called in post_connecting().
Status Connections::attach(const EndPoint& endpoint, Link& link) {
  {
    const std::lock_guard lock(mutex_);
    attached_.insert(&link);
  }
  endpoint.set_context(link.shared_from_this());
  return link.attach(endpoint);
}

std::shared_ptr<Link> Connections::link_of(const EndPoint& endpoint) {
  return endpoint.context<Link>()->shared_from_this();
}

/// Called in on_disconnected(): the link is not used any more, except that the node may still need its figures.
void Connections::ended(const EndPoint& endpoint) {
  const std::shared_ptr<Link> link = link_of(endpoint);
  const bool others_go_on = open_.load(std::memory_order_relaxed);
  others_go_on ? link->release() : link->detach();
  {
    const std::lock_guard lock(mutex_);
    attached_.erase(link.get());
    if (others_go_on) std::erase(links_, link);
  }
  parts_.events->put(
      {.kind = NodeEvent::Kind::kEnded, .rank = link->peer(), .ended = endpoint, .status = endpoint.status()});
}

void Connections::stop() {
  refuse_new_connections();
  for (auto& [rank, client] : clients_) client->session.stop();
  if (server_) server_->stop();
  for (auto& [rank, thread] : connecting_) {
    if (thread.joinable()) thread.join();
  }
}

LinkParts Connections::link_parts(int peer) const {
  return {
      .self = static_cast<int>(parts_.self.rank), .peer = peer, .terms = parts_.self.terms, .events = parts_.events};
}

/// Creates the link for the traffic of a node that asks for a connection.
Result<std::shared_ptr<Inbound>> Connections::admit(const PeerInfo& info) {
  const auto peer = check_introduction(parts_.self, info.private_data);
  if (!peer) return peer.error();
  if (!open_.load(std::memory_order_relaxed)) {
    return make_error(Errc::kPeerRefused, "node " + std::to_string(parts_.self.rank) + " has finished its run");
  }
  if (parts_.events->size() > kMaxUnread + 4 * std::size_t{parts_.self.nodes}) {
    return make_error(Errc::kServerBusy, kHasMuchToDo);
  }
  const int rank = static_cast<int>(peer->rank);
  if (Status free = check_free(*peer, info.address); !free.ok()) return free.error();
  if (Status place = take_place(rank, info.address); !place.ok()) return place.error();
  if (Status free = check_free(*peer, info.address); !free.ok()) {  // checked again after the wait
    handshake_is_over(info.address);
    return free.error();
  }
  auto link = std::make_shared<Inbound>(link_parts(rank));
  keep(link);
  return link;
}

/// Takes a place for a handshake of node `rank`, and waits for one if necessary. If another handshake must give up its
/// place, that one is ended, and may try again.
Status Connections::take_place(int rank, const std::string& address) {
  const auto wait_until = PendingHandshakes::Clock::now() + parts_.session.tcp.handshake_timeout;
  const auto replaced = [&] {
    std::unique_lock lock(mutex_);
    for (;;) {
      const auto now = PendingHandshakes::Clock::now();
      auto entered = pending_.enter(rank, address, now);
      const bool goes_on = !entered && now < wait_until && open_.load(std::memory_order_relaxed);
      if (!goes_on || !pending_.waits(rank, address)) {
        if (!entered) pending_.remove(address);
        place_may_be_free_.notify_all();  // waiting handshakes may move up
        return entered;
      }
      place_may_be_free_.wait_until(lock, std::min(wait_until, pending_.next_look(rank)));
    }
  }();
  if (replaced && *replaced) {
    server_->end_handshake(**replaced, make_error(Errc::kServerBusy, "another handshake of node " +
                                                                         std::to_string(rank) + " replaced this one"));
  }
  return replaced.status();
}

/// Several processes may claim to be the same node. One of them stays:
/// - If this node has reached a process at the node's address in the list, that one stays. Endpoints of other processes
///   are ended.
/// - If not, the first one stays. The exception: it does not come from an address of the mesh, and the new one does.
///   Then the new one stays. A process that is refused in this case gets kServerBusy and tries again, because by then
///   this node may have reached the right one.
Status Connections::check_free(const Introduction& candidate, const std::string& address) {
  const int rank = static_cast<int>(candidate.rank);
  const bool known = knows_host(address);
  const auto lives = [&](const EndPoint& endpoint) {
    return known ? endpoint.check_alive(kSilentBeforeSuccessor) : endpoint.alive();
  };
  const auto refuse = [&](Errc code, const EndPoint& present) {
    return make_error(code, "node " + std::to_string(rank) + " is already connected: " + present.peer() +
                                "; each node must be one process with its own --rank");
  };
  const EndPoint certain = reached(rank);
  const bool is_certain = certain && lives(certain);
  if (is_certain && !is_life(certain, candidate)) return refuse(Errc::kPeerRefused, certain);
  for (const EndPoint& endpoint : server_->endpoints()) {
    const auto present = Introduction::decode(endpoint.peer_private_data());
    if (!present || present->rank != candidate.rank || !lives(endpoint)) continue;
    const bool comes_first = known && !is_of_known_host(endpoint);
    const bool is_same = present->incarnation == candidate.incarnation;
    if (is_same && comes_first) continue;  // the node's own thread replaces it
    if (is_same || !(is_certain || comes_first)) return refuse(Errc::kServerBusy, endpoint);
    endpoint.abort(make_error(Errc::kPeerRefused, "another process is node " + std::to_string(rank)));
  }
  return {};
}

EndPoint Connections::reached(int rank) const {
  const std::lock_guard lock(mutex_);
  const auto found = reached_.find(rank);
  return found == reached_.end() ? EndPoint() : found->second.lock();
}

bool Connections::knows_host(const std::string& address) const {
  const std::lock_guard lock(mutex_);
  return pending_.knows_host(address);
}

bool Connections::is_of_known_host(const EndPoint& endpoint) const {
  return knows_host(endpoint.peer_address());
}

void Connections::fit(HcaConfig& hca, const Link& link) const {
  ChannelConfig channel{.name = kDataChannel, .adapter = parts_.adapter};
  channel.adapter.send_depth = link.terms().queue_depth();
  channel.adapter.recv_depth = link.terms().queue_depth();
  channel.adapter.max_send_slices = 1;
  channel.adapter.max_recv_slices = 1;
  channel.adapter.max_inline_bytes = 0;
  hca.channels = {channel};
  parts_.modes.apply(hca);
  link.publish(hca);
}

}  // namespace rdmacomm::mesh
