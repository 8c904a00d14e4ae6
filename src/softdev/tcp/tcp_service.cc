#include "softdev/tcp/tcp_service.h"

#include <poll.h>
#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <utility>
#include <vector>

#include "base/spin_lock.h"
#include "softdev/common/service_thread.h"
#include "softdev/host/port_watch.h"
#include "softdev/tcp/group_target.h"
#include "softdev/tcp/tcp_connection.h"
#include "softdev/tcp/tcp_link.h"
#include "softdev/tcp/tcp_owner.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_unidentified.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

constexpr int kKindShift = 60;
constexpr int kMaxEvents = 64;
// The thread's intervals for checks of things that no socket reports.
constexpr int kReceivePauseMs = 1;
constexpr int kGreetingPauseMs = 1000;
// Maximum number of connections without an identified peer. Further ones stay in the listener's queue until an older
// one, accepted at least kGreetingTime ago, has still sent no greeting and is dropped.
constexpr std::size_t kMaxUnidentified = 1024;
constexpr std::chrono::milliseconds kGreetingTime{200};
constexpr int kFullPauseMs = 20;
// Maximum number of connections for incoming datagrams.
constexpr std::size_t kMaxSenders = 1024;
// While at least kManyPolls polls happen between two checks of the thread (1 ms apart), the thread leaves the sockets
// to the polls. A poll that finds something counts as kManyPolls. If the thread were woken for each message, it would
// only take CPU time from the pollers. If messages had to wait for the thread nevertheless, as in programs that poll
// memory, it does not leave the sockets to polls for a while. That time is short at first, because the poller may only
// have lost its core.
constexpr std::uint32_t kManyPolls = 64;
constexpr int kPollersPauseMs = 1;
constexpr std::chrono::milliseconds kMinMistrust{1};
constexpr std::chrono::milliseconds kMaxMistrust{128};
// While the thread does not leave the sockets to polls, it is woken after this number of polls that have found
// something.
constexpr std::uint32_t kFindsPerWakeUp = 16;
// After this number of polls in a row that find another thread at work, the poll yields, because that thread may need
// this core.
constexpr std::uint32_t kPatientPolls = 64;
// If at most kFew targets exist, a poll reads each of their sockets directly. Every kFewAtATime polls it checks
// everything.
constexpr std::size_t kFew = 2;
constexpr std::uint32_t kFewAtATime = 16;
// Pauses after such a poll without result. Reading a socket locks it, and incoming packets wait for this lock.
constexpr int kPauses = 8;
// Time limit of exit() for sending the last answers and datagrams.
constexpr std::chrono::milliseconds kLastMessagesTime = TcpLastDatagrams::kTime;
// An answer waits for at most this number of polls with a result, from any connection.
constexpr std::uint32_t kMaxOwingPolls = 16;

/// `most`, or less: at most a quarter of the descriptors that this process may have.
std::size_t allowed(std::size_t most) noexcept {
  rlimit descriptors{};
  if (getrlimit(RLIMIT_NOFILE, &descriptors) != 0) return most;
  return std::max<std::size_t>(std::min<std::size_t>(most, descriptors.rlim_cur / 4), 1);
}

}  // namespace

int TcpService::start() {
  if (epoll_) return 0;
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno;
  for (WakeEvent* const event : {&wake_, &last_messages_sent_}) {
    auto made = WakeEvent::create();
    if (!made) return made.code().value();
    *event = std::move(*made);
  }
  epoll_ = std::move(epoll);
  control(EPOLL_CTL_ADD, wake_.fd(), EPOLLIN, Kind::kWake, 0);
  const int error = start_service_thread(thread_, "soft0-tcp", [this] { run(); });
  if (error != 0) {
    epoll_.reset();
  } else {
    at_exit_.emplace([this] { await_last_messages(); });
  }
  return error;
}

int TcpService::serve(std::uint32_t qpn, const ibv_gid& address) {
  if (premises_.addresses && !premises_.addresses->contains(address)) return EADDRNOTAVAIL;
  TcpAddresses one;
  one.add(address);
  return serve_at(qpn, one);
}

int TcpService::serve_everywhere(std::uint32_t qpn) {
  if (premises_.addresses) return serve_at(qpn, *premises_.addresses);
  TcpAddresses all;
  all.add_all();
  return serve_at(qpn, all);
}

int TcpService::serve_at(std::uint32_t qpn, const TcpAddresses& wanted) {
  const std::scoped_lock lock(start_mutex_);
  if (const int error = start(); error != 0) return error;
  const std::uint16_t port = tcp_port_of(qpn);
  Listener& listener = listeners_[port];
  const bool is_more = listener.addresses.add(wanted);
  if (listener.socket) {
    if (is_more) (void)listener.addresses.apply_to(listener.socket.get());
    return 0;
  }
  listener.socket = tcp_listen(port, premises_.owners.take_port(qpn), listener.addresses);
  if (!listener.socket) return errno;
  const int socket = listener.socket.get();
  control(EPOLL_CTL_ADD, socket, EPOLLIN, Kind::kListener, static_cast<std::uint64_t>(socket));
  active_.store(true, std::memory_order_release);
  return 0;
}

void TcpService::stop() {
  if (!thread_.joinable()) return;
  at_exit_.reset();
  stopping_.store(true, std::memory_order_relaxed);
  {
    const std::scoped_lock lock(mutex_);
    wake_thread();
  }
  thread_.join();
  const std::scoped_lock lock(mutex_, start_mutex_);
  answer_owed(true);
  targets_.clear();
  listeners_.clear();  // before the numbers become free: another process may then take them with their ports
}

void TcpService::control(int operation, int socket, std::uint32_t events, Kind kind, std::uint64_t id) noexcept {
  epoll_event event{};
  event.events = events;
  event.data.u64 = static_cast<std::uint64_t>(kind) << kKindShift | id;
  (void)epoll_ctl(epoll_.get(), operation, socket, &event);
}

void TcpService::watch_initiator(int socket, std::uint32_t qpn) noexcept {
  control(EPOLL_CTL_ADD, socket, EPOLLIN | EPOLLOUT, Kind::kInitiator, qpn);
}

void TcpService::change_initiator(int socket, std::uint32_t qpn, bool wants_output) noexcept {
  control(EPOLL_CTL_MOD, socket, wants_output ? EPOLLIN | EPOLLOUT : EPOLLIN, Kind::kInitiator, qpn);
}

void TcpService::watch_connection(int socket, std::uint64_t id, bool wants_output) noexcept {
  control(EPOLL_CTL_ADD, socket, wants_output ? EPOLLIN | EPOLLOUT : EPOLLIN, Kind::kTarget, id);
}

void TcpService::change_connection(int socket, std::uint64_t id, bool wants_output) noexcept {
  control(EPOLL_CTL_MOD, socket, wants_output ? EPOLLIN | EPOLLOUT : EPOLLIN, Kind::kTarget, id);
}

void TcpService::unwatch_connection(int socket) noexcept {
  control(EPOLL_CTL_DEL, socket, 0, Kind::kTarget, 0);
}

void TcpService::connected(Arrival arrival) {
  {
    const std::scoped_lock lock(start_mutex_);
    arrivals_.push_back(std::move(arrival));
    has_arrivals_.store(true, std::memory_order_relaxed);
  }
  wake_thread();
}

void TcpService::receive_arrivals() {
  if (!has_arrivals_.exchange(false, std::memory_order_relaxed)) return;
  std::vector<Arrival> arrivals;
  {
    const std::scoped_lock lock(start_mutex_);
    arrivals.swap(arrivals_);
  }
  for (Arrival& arrival : arrivals) serve_arrival(std::move(arrival));
}

void TcpService::serve_arrival(Arrival arrival) {
  const TcpGreeting& greeting = arrival.greeting;
  const auto own = premises_.owners.tcp_owner(greeting.initiator_qpn);
  if (own == nullptr || !own->has_sent_greeting(greeting.target_qpn, greeting.token)) return;
  const bool one_way = is_one_way(greeting.service, arrival.route, greeting.initiator_qpn, greeting.target_qpn);
  const std::uint64_t id = next_id_++;
  const auto connection = std::make_shared<TcpConnection>(
      *this, std::move(arrival.socket), own,
      TcpConnection::Ends{id, true, !one_way, {greeting.target_qpn, arrival.limits, greeting.service}});
  targets_.emplace(id, Watched{connection, -1, EPOLLIN});
  change_connection(connection->socket(), id, false);
  own->adopt(connection);
  (void)advance(id);
}

void TcpService::forget_target(std::uint32_t qpn, bool comes_again) {
  end_those([=](TcpServed& served) { return served.forget(qpn, comes_again); });
}

void TcpService::leave_group(std::uint32_t qpn, const ibv_gid& group) {
  end_those([qpn, &group](TcpServed& served) { return served.leave(qpn, group); });
}

template <typename Concerns>
void TcpService::end_those(Concerns&& concerns) {
  if (!active()) return;
  const std::scoped_lock lock(mutex_);
  std::vector<std::uint64_t> concerned;
  for (const auto& [id, watched] : targets_) {
    if (concerns(*watched.served)) concerned.push_back(id);
  }
  for (const std::uint64_t id : concerned) (void)advance(id);
}

int TcpService::join_group(std::uint32_t qpn, const ibv_gid& group) {
  const auto owner = premises_.owners.tcp_owner(qpn);
  if (owner == nullptr) return EINVAL;
  {
    const std::scoped_lock lock(start_mutex_);
    if (const int error = start(); error != 0) return error;
    active_.store(true, std::memory_order_release);
  }
  UniqueFd socket = softdev::join_group(*this, group);
  if (!socket) return errno;
  const std::scoped_lock lock(mutex_);
  const std::uint64_t id = next_id_++;
  targets_.emplace(id, Watched{std::make_shared<GroupTarget>(*this, std::move(socket), group, *owner)});
  (void)advance(id);
  return 0;
}

void TcpService::send_last(std::list<TcpDatagrams>&& senders) {
  const std::scoped_lock lock(mutex_);
  last_datagrams_.add(std::move(senders));
  wake_thread();
}

bool TcpService::leave_sockets_to_polls() noexcept {
  const std::uint32_t polls = polls_.load(std::memory_order_relaxed);
  const bool polled = polls - polls_seen_ >= kManyPolls;
  polls_seen_ = polls;
  const auto now = std::chrono::steady_clock::now();
  if (!read_by_polls_.load(std::memory_order_relaxed)) {
    if (!polled || now < trust_again_at_) return false;
    read_by_polls_since_ = now;
    const std::scoped_lock lock(mutex_);
    read_by_polls_.store(true, std::memory_order_relaxed);
  } else if (!polled || polls_ended_.load(std::memory_order_relaxed)) {
    take_back_from_pollers(now);
    return false;
  }
  pollfd woken{wake_.fd(), POLLIN, 0};
  (void)::poll(&woken, 1, kPollersPauseMs);
  // A thread that polls at this moment sends the answers, too. Waiting for the lock would cost another wake-up.
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (lock) {
    answer_owed(true);  // requests that would carry the answers may be waiting for a receive
    send_last_messages();
  }
  return true;
}

/// The polls have stopped. Input that is still unread has waited, because the pollers polled for something else.
void TcpService::take_back_from_pollers(Clock::time_point now) noexcept {
  const std::scoped_lock lock(mutex_);
  read_by_polls_.store(false, std::memory_order_relaxed);
  watch_all();
  polls_ended_.store(false, std::memory_order_relaxed);
  pollfd waiting{epoll_.get(), POLLIN, 0};
  if (!woken_ && ::poll(&waiting, 1, 0) > 0) {
    mistrust_ = now - read_by_polls_since_ > kMaxMistrust ? kMinMistrust : std::min(2 * mistrust_, kMaxMistrust);
    trust_again_at_ = now + mistrust_;
  }
  get_ready_to_sleep();
}

/// Called at the end of the process. A signal handler may have called exit() while this thread held mutex_, a send
/// queue's lock or the allocator's lock. So the service's thread sends the last messages, and this function waits for
/// it at most kLastMessagesTime.
void TcpService::await_last_messages() noexcept {
  const Clock::time_point give_up_at = Clock::now() + kLastMessagesTime;
  process_ends_.store(true);
  wake_thread();
  pollfd sent{last_messages_sent_.fd(), POLLIN, 0};
  for (auto left = kLastMessagesTime; left.count() > 0;) {
    if (::poll(&sent, 1, static_cast<int>(left.count())) >= 0 || errno != EINTR) return;
    left = std::chrono::duration_cast<std::chrono::milliseconds>(give_up_at - Clock::now());
  }
}

void TcpService::send_last_messages() noexcept {
  if (!process_ends_) return;
  answer_owed(true);
  if (!last_datagrams_.empty() || has_unsent_datagrams()) return;
  process_ends_ = false;
  last_messages_sent_.signal();
}

/// Continues the datagrams of all queue pairs. Returns true if some are still unsent.
bool TcpService::has_unsent_datagrams() noexcept {
  bool has_unsent = false;
  for (const auto& owner : premises_.owners.tcp_owners()) {
    if (!owner->has_unsent_datagrams()) continue;
    owner->advance();
    has_unsent = owner->has_unsent_datagrams() || has_unsent;
  }
  return has_unsent;
}

void TcpService::get_ready_to_sleep() noexcept {
  answer_owed(true);
  if (woken_.exchange(false)) wake_.clear();
  send_last_messages();  // after answer_owed()
  pause_ms_ = pause();   // after answer_owed(), which may have added something to wait for
}

/// Nobody adds a last datagram after stop().
bool TcpService::is_over() noexcept {
  if (!stopping_.load(std::memory_order_relaxed)) return false;
  const std::scoped_lock lock(mutex_);
  return last_datagrams_.empty();
}

void TcpService::run() {
  std::array<epoll_event, kMaxEvents> events{};
  while (!is_over()) {
    if (leave_sockets_to_polls()) continue;
    if (is_over()) break;  // leave_sockets_to_polls() may have consumed the wake-up from stop()
    const int ready = epoll_wait(epoll_.get(), events.data(), kMaxEvents, pause_ms_.load(std::memory_order_relaxed));
    const std::scoped_lock lock(mutex_);
    handle_all(std::span(events).first(static_cast<std::size_t>(std::max(ready, 0))));
    get_ready_to_sleep();
  }
}

bool TcpService::poll() noexcept {
  polls_.fetch_add(1, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) {
    if (vain_polls_.fetch_add(1, std::memory_order_relaxed) % kPatientPolls == kPatientPolls - 1) sched_yield();
    return true;
  }
  if (vain_polls_.load(std::memory_order_relaxed) != 0) vain_polls_.store(0, std::memory_order_relaxed);
  const bool waits = !waiting_.empty() || !busy_.empty();
  const bool found = look();
  if (found) note_find();
  // While polls find more input, the application has not polled all of it and may still send requests, which also carry
  // answers. An answer may wait for that only while the thread checks regularly if polls still happen.
  answer_owed(!found || !read_by_polls_.load(std::memory_order_relaxed));
  hurry_thread();
  return found || waits;
}

/// Input also wakes the thread. But if a poll is faster, the kernel lets the thread sleep on, so it would never notice
/// that it can leave the sockets to polls.
void TcpService::note_find() noexcept {
  polls_.fetch_add(kManyPolls, std::memory_order_relaxed);
  if (!read_by_polls_.load(std::memory_order_relaxed) && ++finds_ % kFindsPerWakeUp == 0) wake_thread();
}

/// Returns  true if something was found.
bool TcpService::look() {
  const bool has_few = !targets_.empty() && targets_.size() <= kFew;
  const bool is_all = ++looks_ % kFewAtATime == 0;
  if (!has_few) watch_all();
  const bool found = has_few && look_at_few();
  if (found && !is_all) return true;
  const auto is_brief = [](const auto& one) { return one.second.served->is_brief(); };
  if (has_few && !is_all && std::ranges::all_of(targets_, is_brief)) {
    for (int i = 0; i < kPauses; ++i) pause_core();
    advance_waiting();
    return false;
  }
  std::array<epoll_event, kMaxEvents> events;
  const int ready = epoll_wait(epoll_.get(), events.data(), kMaxEvents, 0);
  handle_all(std::span(events).first(static_cast<std::size_t>(std::max(ready, 0))));
  return found || ready > 0;
}

/// Reporting a message to epoll costs the sender as much time as reading the socket costs the poller. So while the
/// thread leaves all sockets to polls, sockets that each poll reads are not in the epoll set.
bool TcpService::look_at_few() {
  std::array<std::uint64_t, kFew> brief{};
  std::size_t count = 0;
  for (const auto& [id, watched] : targets_) {
    const bool is_brief = watched.served->is_brief();
    const bool left = is_brief && read_by_polls_.load(std::memory_order_relaxed);
    watched.served->set_read_by_polls(left);
    has_unwatched_ = has_unwatched_ || left;
    if (is_brief) brief[count++] = id;
  }
  bool found = false;
  for (std::size_t i = 0; i < count; ++i) found = advance(brief[i]) || found;
  return found;
}

void TcpService::watch_all() {
  if (!std::exchange(has_unwatched_, false)) return;
  for (const auto& [id, watched] : targets_) watched.served->set_read_by_polls(false);
}

void TcpService::polls_end() noexcept {
  if (!read_by_polls_.load(std::memory_order_relaxed)) return;
  const std::scoped_lock lock(mutex_);
  polls_ended_.store(true, std::memory_order_relaxed);
  wake_thread();
}

void TcpService::wake_thread() noexcept {
  if (!woken_.exchange(true)) wake_.signal();
}

/// Wakes the thread earlier if its current sleep is longer than the result of the poll allows.
void TcpService::hurry_thread() noexcept {
  const int wanted = pause();
  if (wanted < 0 || (pause_ms_ >= 0 && pause_ms_ <= wanted)) return;
  pause_ms_ = wanted;
  wake_thread();
}

int TcpService::pause() {
  if (!busy_.empty() || has_arrivals_.load(std::memory_order_relaxed)) return 0;
  if (!waiting_.empty() || !last_datagrams_.empty() || process_ends_) return kReceivePauseMs;
  if (is_full_) return kFullPauseMs;
  return greeting_.empty() && paused_listeners_.empty() ? -1 : kGreetingPauseMs;
}

/// Drops a target whose connection has ended. While a target waits and does not read its socket, it cannot notice that
/// itself.
void TcpService::end_if_over(std::uint64_t id, std::uint32_t events) {
  const auto found = targets_.find(id);
  const bool is_blind = found != targets_.end() && found->second.events == EPOLLET;
  if (is_blind && (events & (EPOLLHUP | EPOLLERR)) != 0) drop(id);
}

/// Continues targets with socket events, and targets that wait for other things.
void TcpService::handle_all(std::span<const epoll_event> events) {
  receive_arrivals();
  for (const epoll_event& event : events) handle(event.data.u64, event.events);
  receive_arrivals();
  last_datagrams_.advance();
  advance_waiting();
  if (is_full_ && has_room_for_another()) accept_again();
}

void TcpService::handle(std::uint64_t what, std::uint32_t events) {
  const std::uint64_t id = what & ((std::uint64_t{1} << kKindShift) - 1);
  switch (static_cast<Kind>(what >> kKindShift)) {
    case Kind::kWake: woken_ = true; break;
    case Kind::kListener: accept_all(static_cast<int>(id)); break;
    case Kind::kTarget:
      end_if_over(id, events);
      (void)advance(id);
      break;
    case Kind::kInitiator:
      if (const auto owner = premises_.owners.tcp_owner(static_cast<std::uint32_t>(id))) owner->advance();
      break;
  }
}

/// Stops watching a listener. Repeated events for the same waiting connections would be useless.
void TcpService::stop_accepting(int listener) {
  control(EPOLL_CTL_MOD, listener, 0, Kind::kListener, static_cast<std::uint64_t>(listener));
  paused_listeners_.insert(listener);
}

void TcpService::accept_again() {
  is_full_ = false;
  for (const int listener : std::exchange(paused_listeners_, {})) {
    control(EPOLL_CTL_MOD, listener, EPOLLIN, Kind::kListener, static_cast<std::uint64_t>(listener));
  }
}

bool TcpService::is_served_at(int listener, const ibv_gid& address) {
  const std::scoped_lock lock(start_mutex_);
  const auto found =
      std::ranges::find_if(listeners_, [listener](const auto& one) { return one.second.socket.get() == listener; });
  return found != listeners_.end() && found->second.addresses.contains(address);
}

/// True if an address of this host is one of the device, or leads to all devices of the host because it is a loopback
/// address.
bool TcpService::is_devices(const ibv_gid& address) {
  PortWatch& port = premises_.port;
  if (!port.is_bound() || verbs::reach_of(address) == verbs::Reach::kHost) return true;
  std::vector<ibv_gid_entry> table;
  return port.gids(table) == 0 &&
         std::ranges::any_of(table, [&](const ibv_gid_entry& one) { return verbs::equal(one.gid, address); });
}

bool TcpService::has_room_for_another() const {
  if (!over_.empty() || unknown_.size() < allowed(kMaxUnidentified)) return true;
  return Clock::now() - targets_.at(*unknown_.begin()).since >= kGreetingTime;
}

/// Call only if has_room_for_another(). Targets that only wait for their peer to close are dropped first.
void TcpService::make_room_for_another() {
  if (unknown_.size() + over_.size() < allowed(kMaxUnidentified)) return;
  drop(over_.empty() ? *unknown_.begin() : *over_.begin());
}

/// Accepts a limited number, so that others can continue: connections that end at once would make room for the next
/// ones without end.
void TcpService::accept_all(int listener) {
  for (int count = 0; count < kMaxEvents; ++count) {
    if (!has_room_for_another()) {
      is_full_ = true;
      return stop_accepting(listener);
    }
    Route back;
    UniqueFd socket = tcp_accept(listener, back);
    if (!socket) {
      if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) stop_accepting(listener);
      return;
    }
    if (!is_served_at(listener, back.source) || !is_devices(back.source)) continue;
    make_room_for_another();
    const std::uint64_t id = next_id_++;
    targets_.emplace(id, Watched{std::make_shared<TcpUnidentified>(*this, std::move(socket), back, id)});
    (void)advance(id);
  }
}

void TcpService::drop(std::uint64_t id) {
  targets_.erase(id);
  waiting_.erase(id);
  busy_.erase(id);
  greeting_.erase(id);
  unknown_.erase(id);
  over_.erase(id);
  senders_.erase(id);
}

/// Any process may connect as a sender of datagrams without sending a valid one. So half of the room is reserved for
/// senders with at least one taken datagram. A dropped sender connects again for its next datagram.
std::optional<std::uint64_t> TcpService::sender_to_go(std::uint64_t new_sender) const {
  std::optional<std::uint64_t> oldest_unknown;
  std::optional<std::uint64_t> idlest;
  Clock::time_point idle_since = Clock::time_point::max();
  std::size_t unknown = 0;
  for (const std::uint64_t id : senders_) {
    const TcpServed& sender = *targets_.at(id).served;
    const Clock::time_point taken = *sender.last_taken();
    const bool is_unknown = taken == Clock::time_point::min();
    unknown += is_unknown ? 1 : 0;
    if (id == new_sender || sender.waits()) continue;
    if (is_unknown) {
      if (!oldest_unknown) oldest_unknown = id;
    } else if (taken < idle_since) {
      idle_since = taken;
      idlest = id;
    }
  }
  const bool unknown_first = 2 * unknown > senders_.size() || !idlest;
  return unknown_first && oldest_unknown ? oldest_unknown : idlest;
}

/// Drops one sender of datagrams, after its received datagrams were taken.
void TcpService::make_room_for(std::uint64_t sender) {
  for (std::size_t tries = senders_.size(); tries != 0; --tries) {
    const std::optional<std::uint64_t> goes = sender_to_go(sender);
    if (!goes) break;
    const auto before = targets_.at(*goes).served->last_taken();
    (void)advance(*goes);
    const auto left = targets_.find(*goes);
    if (left == targets_.end()) return;
    const bool idle = left->second.served->last_taken() == before && !left->second.served->waits();
    if (idle) return drop(*goes);
  }
  drop(sender);  // all others wait for receives, and this one would, too
}

/// Returns  true if something new was found.
bool TcpService::advance(std::uint64_t id) {
  const auto found = targets_.find(id);
  if (found == targets_.end()) {
    drop(id);
    return false;
  }
  Watched& watched = found->second;
  bool lives = watched.served->progress();
  if (watched.events == 0) watch(id, watched);  // the successor may manage its epoll registration itself
  while (auto successor = watched.served->successor()) {
    watched.served = std::move(successor);
    lives = watched.served->progress();
  }
  if (!lives) {
    drop(id);
    return true;
  }
  const auto is_in = [id](std::set<std::uint64_t>& set, bool member) {
    if (member) {
      set.insert(id);
    } else if (!set.empty()) {
      set.erase(id);
    }
  };
  is_in(waiting_, watched.served->waits());
  is_in(busy_, watched.served->has_more());
  is_in(greeting_, watched.served->lingers());
  is_in(unknown_, watched.served->standing() == TcpStanding::kUnknown);
  is_in(over_, watched.served->standing() == TcpStanding::kOver);
  if (watched.served->owes_answer() && watched.owing == 0) {
    watched.owing = 1;
    owing_.push_back(id);
  }
  watch(id, watched);
  const bool has_received = watched.served->has_received();
  const bool comes = watched.served->last_taken() && senders_.insert(id).second;
  if (comes && senders_.size() > allowed(kMaxSenders)) make_room_for(id);
  return has_received;
}

void TcpService::watch(std::uint64_t id, Watched& watched) {
  if (watched.served->question() != watched.question) {
    watched.question = watched.served->question();
    // Edge-triggered, because the socket is nearly always writable and rarely has anything to send.
    if (watched.question >= 0) {
      control(EPOLL_CTL_ADD, watched.question, EPOLLIN | EPOLLOUT | EPOLLET, Kind::kTarget, id);
    }
  }
  const std::uint32_t events = watched.served->events();
  if (events == 0 || events == watched.events) return;
  control(watched.events == 0 ? EPOLL_CTL_ADD : EPOLL_CTL_MOD, watched.served->socket(), events, Kind::kTarget, id);
  watched.events = events;
}

void TcpService::advance_waiting() {
  if (busy_.empty() && waiting_.empty() && greeting_.empty() && paused_listeners_.empty()) return;
  for (const std::uint64_t id : std::vector(busy_.begin(), busy_.end())) (void)advance(id);
  for (const std::uint64_t id : std::vector(waiting_.begin(), waiting_.end())) (void)advance(id);
  if (!greeting_.empty() || !paused_listeners_.empty()) check_unidentified();
}

/// Makes targets send the answers that they owe. If `all` is false, only targets that owe many answers, or have owed
/// them for kMaxOwingPolls, send them.
void TcpService::answer_owed(bool all) {
  std::erase_if(owing_, [&](std::uint64_t id) {
    const auto found = targets_.find(id);
    if (found == targets_.end()) return true;
    TcpServed& served = *found->second.served;
    const bool may_wait = served.owes_answer() && !served.owes_much() && ++found->second.owing < kMaxOwingPolls;
    if (!all && may_wait) return false;
    found->second.owing = 0;
    if (served.owes_answer()) served.answer_what_is_owed();
    return true;
  });
}

/// Called regularly, even if there is other work: drops connections that stay without a greeting.
void TcpService::check_unidentified() {
  const auto now = std::chrono::steady_clock::now();
  if (now < unidentified_due_) return;
  unidentified_due_ = now + std::chrono::milliseconds(kGreetingPauseMs);
  if (!is_full_) accept_again();
  for (const std::uint64_t id : std::vector(greeting_.begin(), greeting_.end())) (void)advance(id);
}

}  // namespace rdmacomm::softdev
