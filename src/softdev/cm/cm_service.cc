#include "softdev/cm/cm_service.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstddef>
#include <utility>

#include "softdev/common/service_thread.h"
#include "softdev/shared/unix_packet.h"
#include "softdev/tcp/tcp_socket.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

using std::chrono::milliseconds;

// Connections whose first message has not arrived. Those of other hosts take no place from those of this host.
constexpr std::ptrdiff_t kMaxRemote = 64;
constexpr std::ptrdiff_t kMaxLocal = 64;
constexpr milliseconds kLongestIntroduction{10'000};
constexpr milliseconds kEnoughTime{200};  // for an introduction, while others wait
constexpr milliseconds kNextTryOfListener{1'000};
constexpr milliseconds kRest{10};  // while this process can have no more files

CmAddress target_of(const CmMessage& request) {
  CmAddress target;
  target.family = static_cast<sa_family_t>(request.family);
  target.gid = request.target;
  target.port = request.target_port;
  return target;
}

/// A request from another host must name the addresses of its connection.
bool names_its_socket(const CmMessage& request, const Route& back) {
  return verbs::equal(request.source, back.target) && verbs::equal(request.target, back.source);
}

/// True if a connection could not be accepted, for which errno is the reason, and still waits.
bool cannot_accept() {
  return errno == EMFILE || errno == ENFILE || errno == ENOMEM || errno == ENOBUFS;
}

}  // namespace

CmService::CmService(std::vector<DeviceIdentity> identities, Settings settings)
    : devices_(std::move(identities)), settings_(std::move(settings)) {}

CmService::~CmService() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
    wake_.signal();
  }
  if (thread_.joinable()) thread_.join();
}

// ---- Identifiers

std::shared_ptr<CmId> CmService::create(std::shared_ptr<CmFile> file, std::uint64_t uid, std::uint16_t port_space,
                                        std::uint8_t qp_type) {
  const std::uint32_t number = next_number_++;
  auto id = std::make_shared<CmId>(*this, std::move(file), number, uid, port_space, qp_type);
  ids_.emplace(number, id);
  return id;
}

std::shared_ptr<CmId> CmService::find(std::uint32_t number) const {
  const auto found = ids_.find(number);
  return found == ids_.end() ? nullptr : found->second;
}

void CmService::remove(CmId& id) {
  const auto kept = id.shared_from_this();
  id.destroy();
  const auto unread =
      id.file()->remove([&id](const CmEvent& event) { return event.id.get() == &id || event.arrived.get() == &id; });
  ids_.erase(id.number());
  std::erase_if(memberships_, [&id](const auto& entry) { return entry.second.id.get() == &id; });
  // The program will never know of connections that arrived at a listener which is gone.
  for (const CmEvent& event : unread) {
    if (event.arrived && event.arrived.get() != &id) remove(*event.arrived);
  }
}

std::vector<std::shared_ptr<CmId>> CmService::of(const CmFile& file) const {
  std::vector<std::shared_ptr<CmId>> found;
  for (const auto& [number, id] : ids_) {
    if (id->file().get() == &file) found.push_back(id);
  }
  return found;
}

std::uint32_t CmService::add_membership(CmId& id) {
  const std::uint32_t number = next_number_++;
  memberships_[number] = {id.shared_from_this()};
  return number;
}

void CmService::count_membership_event(std::uint32_t number) {
  if (const auto found = memberships_.find(number); found != memberships_.end()) ++found->second.reported_events;
}

std::optional<CmService::Membership> CmService::end_membership(std::uint32_t number) {
  const auto found = memberships_.find(number);
  if (found == memberships_.end()) return std::nullopt;
  Membership ended = std::move(found->second);
  memberships_.erase(found);
  return ended;
}

// ---- The thread and its sockets

int CmService::start() {
  if (thread_.joinable()) return 0;
  UniqueFd epoll(epoll_create1(EPOLL_CLOEXEC));
  if (!epoll) return errno;
  auto wake = WakeEvent::create();
  if (!wake) return EMFILE;
  if (const int error = devices_.list_addresses(); error != 0) return error;
  epoll_ = std::move(epoll);
  wake_ = *std::move(wake);
  watch(wake_.fd(), EPOLLIN);
  return start_service_thread(thread_, "soft0-cm", [this] { run(); });
}

void CmService::open_host_listener() {
  if (settings_.tcp_use == TcpUse::kNever || devices_.is_infiniband()) return;
  if (host_listener_.is_open()) return;
  host_listener_retry_at_.reset();
  const int error = host_listener_.open(settings_.addresses);
  if (error == EINPROGRESS) watch(host_listener_.asking(), EPOLLIN);
  if (error == EAGAIN) host_listener_retry_at_ = Clock::now() + kNextTryOfListener;
  if (error != 0) return;
  watch(host_listener_.tcp(), EPOLLIN);
  watch(host_listener_.requests(), EPOLLIN);
}

void CmService::watch(int fd, std::uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.fd = fd;
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0 && errno == EEXIST) {
    (void)epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, fd, &event);
  }
}

void CmService::unwatch(int fd) noexcept {
  (void)epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
}

void CmService::forget_socket(CmId& id, int fd) {
  const auto found = watched_.find(fd);
  if (found == watched_.end() || found->second.id != id.number()) return;
  watched_.erase(found);
  unwatch(fd);
}

void CmService::update(CmId& id) {
  const auto want = [this, &id](int fd, std::uint32_t events) {
    if (fd < 0) return;
    const Watched wanted{id.number(), events};
    if (std::exchange(watched_[fd], wanted) != wanted) watch(fd, events);
  };
  want(id.listener(), id.has_room() ? EPOLLIN : 0U);
  want(id.link(), id.link_has_unsent() ? EPOLLIN | EPOLLOUT : EPOLLIN);
  wake_.signal();
}

void CmService::run() {
  std::array<epoll_event, 64> events{};
  for (;;) {
    int wait = 0;
    bool must_rest = false;
    {
      const std::scoped_lock lock(mutex_);
      if (stopping_) return;
      must_rest = std::exchange(must_rest_, false);
      wait = time_to_wait(Clock::now());
    }
    // A connection that cannot be accepted keeps its listener readable. This avoids a busy loop.
    if (must_rest) std::this_thread::sleep_for(kRest);
    const int ready = epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), wait);
    const std::scoped_lock lock(mutex_);
    if (stopping_ || has_lost_its_files()) return;
    for (int i = 0; i < ready; ++i) handle(events[static_cast<std::size_t>(i)].data.fd);
    check_deadlines(Clock::now());
  }
}

void CmService::handle(int fd) {
  if (fd == wake_.fd()) {
    wake_.clear();
    return;
  }
  if (fd == host_listener_.asking()) return open_host_listener();
  if (fd == host_listener_.tcp()) return accept_from_other_hosts();
  if (fd == host_listener_.requests()) {
    must_rest_ = (!host_listener_.share() && cannot_accept()) || must_rest_;
    return;
  }
  if (const auto found = watched_.find(fd); found != watched_.end()) {
    const auto id = find(found->second.id);
    if (!id) return;
    if (id->listener() == fd) return accept_at(*id);
    return id->handle_link();
  }
  const auto which = std::ranges::find_if(unidentified_, [fd](const auto& one) { return one.link.fd() == fd; });
  if (which != unidentified_.end()) serve_unidentified(which);
}

int CmService::time_to_wait(Clock::time_point now) const {
  std::optional<Clock::time_point> next;
  const auto consider = [&next](Clock::time_point time) { next = next ? std::min(*next, time) : time; };
  for (const auto& [number, id] : ids_) {
    if (const auto deadline = id->deadline()) consider(*deadline);
  }
  for (const Unidentified& one : unidentified_) {
    consider(one.is_identified ? now + kNextCmTry : one.accepted_at + kLongestIntroduction);
  }
  if (host_listener_retry_at_) consider(*host_listener_retry_at_);
  if (host_listener_is_paused_) consider(now + kEnoughTime);
  if (!next) return -1;
  const auto left = std::chrono::ceil<milliseconds>(*next - now).count();
  return static_cast<int>(std::clamp<std::int64_t>(left, 0, 60'000));
}

void CmService::check_deadlines(Clock::time_point now) {
  std::vector<std::shared_ptr<CmId>> due;
  for (const auto& [number, id] : ids_) {
    if (const auto deadline = id->deadline(); deadline && *deadline <= now) due.push_back(id);
  }
  for (const auto& id : due) id->handle_deadline();
  for (auto which = unidentified_.begin(); which != unidentified_.end();) {
    const auto next = std::next(which);
    if (now >= which->accepted_at + kLongestIntroduction) {
      end_unidentified(which);
    } else if (which->is_identified) {
      serve_unidentified(which);
    }
    which = next;
  }
  if (host_listener_retry_at_ && now >= *host_listener_retry_at_) open_host_listener();
  if (host_listener_is_paused_) make_room(now);
}

// ---- Connections that arrive

bool CmService::is_full(bool is_local) const {
  const auto count =
      std::ranges::count_if(unidentified_, [is_local](const auto& one) { return one.is_local == is_local; });
  return count >= (is_local ? kMaxLocal : kMaxRemote);
}

std::list<CmService::Unidentified>::iterator CmService::oldest(bool is_local) {
  // The list is in the order of arrival.
  return std::ranges::find_if(unidentified_, [is_local](const auto& one) { return one.is_local == is_local; });
}

void CmService::end_unidentified(std::list<Unidentified>::iterator which) {
  unwatch(which->link.fd());
  unidentified_.erase(which);
}

void CmService::make_room(Clock::time_point now) {
  if (is_full(false) && now >= oldest(false)->accepted_at + kEnoughTime) end_unidentified(oldest(false));
  const bool is_full = this->is_full(false);
  if (is_full != host_listener_is_paused_) watch(host_listener_.tcp(), is_full ? 0U : EPOLLIN);
  host_listener_is_paused_ = is_full;
}

void CmService::accept_from_other_hosts() {
  make_room(Clock::now());
  if (host_listener_is_paused_) return;
  Route back;
  UniqueFd socket = tcp_accept(host_listener_.tcp(), back);
  if (!socket) {
    must_rest_ = must_rest_ || cannot_accept();
    return;
  }
  // The port is bound to all addresses; not all systems let a filter drop connections to the others.
  if (settings_.addresses && !settings_.addresses->contains(back.source)) return;
  add_unidentified({CmLink(std::move(socket)), Clock::now(), back, {}, false, false, {}});
}

std::shared_ptr<CmId> CmService::listener_for(const CmMessage& request) const {
  std::shared_ptr<CmId> any;
  for (const auto& [number, id] : ids_) {
    if (id->state() != CmState::kListening || id->port_space() != request.port_space) continue;
    if (id->source().port != request.target_port || !id->listens_to(request.target)) continue;
    if (!id->source().is_any()) return id;
    any = id;
  }
  return any;
}

/// Returns  false: later, since its listener has no room.
bool CmService::hand_over(Unidentified& connection) {
  const CmMessage& request = connection.request;
  if (const auto own = listener_for(request)) {
    if (!own->has_room()) return false;
    own->receive_request(std::move(connection.link), request);
    return true;
  }
  bool is_full = false;
  for (const std::string& name : listener_names(request.port_space, target_of(request))) {
    const UniqueFd socket = connect_at_once(name);
    if (!socket) {
      is_full = is_full || errno == EAGAIN;
      continue;
    }
    // To this user's processes only: the connection is no other user's. Another user may have one of the names.
    PeerCredentials peer;
    if (!peer_credentials(socket.get(), peer) || peer.uid != geteuid()) continue;
    const auto bytes = std::as_bytes(std::span(&request, 1));
    if (send_at_once(socket.get(), bytes, {}, connection.link.fd())) return true;
  }
  if (is_full) return false;
  connection.link.send(no_listener(request));
  return true;
}

void CmService::add_unidentified(Unidentified connection) {
  const int fd = connection.link.fd();
  unidentified_.push_back(std::move(connection));
  watch(fd, EPOLLIN);
}

void CmService::serve_unidentified(std::list<Unidentified>::iterator which) {
  const int fd = which->link.fd();
  if (!(which->is_local ? serve_local(*which) : serve_remote(*which))) return;
  if (which->link.fd() >= 0) unwatch(fd);
  unidentified_.erase(which);
}

bool CmService::serve_remote(Unidentified& connection) {
  if (!connection.is_identified) {
    const CmLink::Received received = connection.link.receive(connection.request);
    if (received == CmLink::Received::kNothing) return false;
    connection.is_identified = received == CmLink::Received::kMessage && is_request(connection.request) &&
                               names_its_socket(connection.request, connection.back);
    if (!connection.is_identified) return true;
    unwatch(connection.link.fd());  // until it has a place, its end is not interesting
  }
  return hand_over(connection);
}

bool CmService::serve_local(Unidentified& connection) {
  CmMessage& request = connection.request;
  UniqueFd passed;
  const int fd = connection.link.fd();
  const auto bytes = std::as_writable_bytes(std::span(&request, 1));
  const ssize_t length = receive_packet(fd, bytes, {}, &passed, 0);
  if (length < 0 && errno == EAGAIN) return false;
  const auto listener = connection.listener.lock();
  if (!listener || listener->state() != CmState::kListening) return true;
  if (length != static_cast<ssize_t>(bytes.size()) || !is_valid(request) || !is_request(request)) return true;
  if (request.port_space != listener->port_space() || request.target_port != listener->source().port) return true;
  if (passed) {  // a connection from another host, which another process has accepted
    PeerCredentials peer;
    const bool is_own = peer_credentials(fd, peer) && peer.uid == geteuid();
    if (!is_own || !tcp_route_of(passed.get(), connection.back) || !names_its_socket(request, connection.back))
      return true;
    listener->receive_request(CmLink(std::move(passed)), request);
    return true;
  }
  CmAddress source;
  source.gid = request.source;
  if (!devices_.is_on_this_host(source)) return true;
  unwatch(fd);
  listener->receive_request(std::move(connection.link), request);
  return true;
}

void CmService::accept_at(CmId& listener) {
  if (!listener.has_room()) return;
  UniqueFd socket(accept4(listener.listener(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  if (!socket) {
    must_rest_ = must_rest_ || cannot_accept();
    return;
  }
  // The oldest one's request should have come at once.
  if (is_full(true)) end_unidentified(oldest(true));
  add_unidentified({CmLink(std::move(socket)), Clock::now(), {}, listener.weak_from_this(), true, false, {}});
}

bool CmService::has_lost_its_files() const noexcept {
  if (!thread_.joinable()) return false;
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.fd = wake_.fd();
  return epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, wake_.fd(), &event) != 0;
}

void CmService::stop_without_files() noexcept {
  const std::scoped_lock lock(mutex_);
  stopping_ = true;
  if (thread_.joinable()) thread_.detach();
}

void CmService::abandon() noexcept {
  host_listener_.close();
  unidentified_.clear();
  for (const auto& [number, id] : ids_) id->abandon();
  wake_ = WakeEvent();
  epoll_.reset();
}

}  // namespace rdmacomm::softdev
