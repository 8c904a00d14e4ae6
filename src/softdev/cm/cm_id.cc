#include "softdev/cm/cm_id.h"

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <random>
#include <utility>

#include "softdev/cm/cm_service.h"
#include "softdev/common/device_limits.h"
#include "softdev/host/gid_table.h"
#include "softdev/queues/queue_pairs.h"
#include "softdev/tcp/expected_secrets.h"
#include "softdev/tcp/tcp_socket.h"
#include "verbs/gid.h"

namespace rdmacomm::softdev {
namespace {

using std::chrono::milliseconds;

/// The kernel sends a request 16 times, every 4.3 s, until it is answered.
constexpr milliseconds kLongestAnswer{68'000};
/// Programs that close a listener and open another one at the same port (perftest -R) leave it without one for a moment.
constexpr milliseconds kWithoutListener{200};
constexpr milliseconds kWithoutListenerElsewhere{1000};  // lost packets prolong the moment
constexpr milliseconds kLongestDisconnect{5'000};
constexpr milliseconds kTimeWait{500};       // until late packets of a connection would be gone
constexpr std::uint32_t kMaxBacklog = 1024;  // the kernel's default limit
constexpr std::uint8_t kAckTimeout = 17;     // 0.54 s: the kernel's for RoCE
constexpr std::uint32_t kMulticastQpn = 0xffffff;
constexpr std::uint32_t kNumberMask = 0xffffff;
constexpr std::uint32_t kDatagramQkey = 0x01234567;  // RDMA_UDP_QKEY of librdmacm

// Room for the program's bytes in the kernel's messages. Without AF_IB, the addresses take 36 bytes of the first.
// Source: include/rdma/ib_cm.h.
constexpr std::uint8_t kAddressBytes = 36;
constexpr std::uint8_t kConnectRoom = 92;
constexpr std::uint8_t kAcceptRoom = 196;
constexpr std::uint8_t kRejectRoom = 148;
constexpr std::uint8_t kLookUpRoom = 216;
constexpr std::uint8_t kFoundRoom = 136;

std::uint8_t room_of(std::uint8_t whole, sa_family_t family) noexcept {
  return family == AF_IB ? whole : static_cast<std::uint8_t>(whole - kAddressBytes);
}

CmAddress loopback(sa_family_t family) noexcept {
  CmAddress address;
  address.family = family;
  address.gid.raw[15] = 1;
  if (family == AF_INET) {
    address.gid.raw[10] = address.gid.raw[11] = 0xff;
    address.gid.raw[12] = 127;
  }
  return address;
}

bool is_loopback(const CmAddress& address) noexcept {
  return verbs::reach_of(address.gid) == verbs::Reach::kHost;
}

bool is_link_local_ipv6(const CmAddress& address) noexcept {
  return address.family == AF_INET6 && verbs::reach_of(address.gid) == verbs::Reach::kLink;
}

}  // namespace

CmId::CmId(CmService& service, std::shared_ptr<CmFile> file, std::uint32_t number, std::uint64_t uid,
           std::uint16_t port_space, std::uint8_t qp_type)
    : service_(service),
      file_(std::move(file)),
      number_(number),
      uid_(uid),
      port_space_(port_space),
      qp_type_(qp_type),
      ack_timeout_(kAckTimeout),
      psn_(std::random_device{}() & kNumberMask) {}

// ---- Addresses

int CmId::take_device() {
  return service_.devices().find(source_, place_);
}

int CmId::bind(CmAddress address) {
  if (state_ != CmState::kIdle) return EINVAL;
  if (length_of(address.family) == 0) return EAFNOSUPPORT;
  if (is_link_local_ipv6(address) && address.interface == 0) return EINVAL;
  const bool is_loopback_gid = address.family == AF_IB && verbs::equal(address.gid, loopback(AF_INET6).gid);
  if (is_loopback_gid) address.gid = service_.devices().gid(loopback(AF_INET));
  source_ = address;
  // A loopback address selects no device, as in the kernel (drivers/infiniband/core/cma.c, cma_any_addr). libfabric
  // binds one to find out whether it does, and would then tell other hosts to connect to it.
  if (!address.is_any() && !is_loopback(address)) {
    if (const int error = take_device(); error != 0) return error;
  }
  // An AF_IB address may name a port space; an identifier of another space than RDMA_PS_IB has its own.
  if (port_space_ == RDMA_PS_IB && address.port_space != 0) port_space_ = address.port_space;
  if (const int error = claim_.take(port_space_, source_, shares_port_, is_ipv6_only_); error != 0) {
    place_ = {};
    return error;
  }
  state_ = CmState::kBound;
  return 0;
}

int CmId::resolve_address(const CmAddress& source, CmAddress target) {
  if (state_ == CmState::kIdle && source.family != AF_UNSPEC && (!source.is_any() || source.port != 0)) {
    if (const int error = bind(source); error != 0) return error;
  }
  if (state_ != CmState::kIdle && state_ != CmState::kBound) return EINVAL;
  if (length_of(target.family) == 0) return EAFNOSUPPORT;
  const bool has_source = state_ == CmState::kBound && !source_.is_any();
  if (has_source && source_.family != target.family) return EINVAL;
  if (target.is_any()) {
    const std::uint16_t port = target.port;
    target = has_source ? source_ : loopback(target.family);
    target.port = port;
  }
  if (is_multicast(target.gid) && !is_datagram()) return EINVAL;
  const bool is_elsewhere = !is_multicast(target.gid) && !service_.devices().is_on_this_host(target);
  if (service_.devices().is_infiniband() && is_elsewhere) return EHOSTUNREACH;
  if (!has_source) {
    CmAddress from;
    if (target.family == AF_IB) {
      from = target;
      from.port = source_.port;
    } else {
      from.port = source_.port;
      if (const int error = source_for(target, from); error != 0) return error;
    }
    // Nothing is ever sent to this port, so it may be any number, and need not be taken from other processes.
    if (from.port == 0) from.port = static_cast<std::uint16_t>(32768 + std::random_device{}() % 28232);
    source_ = from;
  }
  if (!has_device()) {
    if (const int error = take_device(); error != 0) return error;
  }
  if (target.interface == 0 && is_link_local_ipv6(target)) target.interface = source_.interface;
  if (port_space_ == RDMA_PS_IB && target.port_space != 0) port_space_ = target.port_space;
  target_ = target;
  state_ = CmState::kAddressResolved;
  post(CmEventType::kAddressResolved, 0);
  return 0;
}

int CmId::resolve_route() {
  if (state_ != CmState::kAddressResolved) return EINVAL;
  state_ = CmState::kRouteResolved;
  post(CmEventType::kRouteResolved, 0);
  return 0;
}

bool CmId::has_route() const noexcept {
  return state_ >= CmState::kRouteResolved && state_ != CmState::kListening;
}

int CmId::set_option(std::uint32_t level, std::uint32_t name, const void* value, std::uint32_t length) {
  if (level == RDMA_OPTION_IB && name == RDMA_OPTION_IB_PATH) {
    if (length == 0 || length % sizeof(ib_path_rec_data) != 0) return EINVAL;
    return resolve_route();  // there is only one path
  }
  if (level != RDMA_OPTION_ID) return ENOSYS;
  std::uint8_t byte = 0;
  int number = 0;
  if (name == RDMA_OPTION_ID_TOS || name == RDMA_OPTION_ID_ACK_TIMEOUT) {
    if (length != sizeof(byte)) return EINVAL;
    std::memcpy(&byte, value, sizeof(byte));
  } else if (name == RDMA_OPTION_ID_REUSEADDR || name == RDMA_OPTION_ID_AFONLY) {
    if (length != sizeof(number)) return EINVAL;
    std::memcpy(&number, value, sizeof(number));
  }
  switch (name) {
    case RDMA_OPTION_ID_TOS: traffic_class_ = byte; return 0;
    case RDMA_OPTION_ID_ACK_TIMEOUT:
      if (byte > 31 || is_datagram()) return EINVAL;
      ack_timeout_ = byte;
      return 0;
    case RDMA_OPTION_ID_REUSEADDR:
      if (state_ != CmState::kIdle) return EINVAL;
      shares_port_ = number != 0;
      return 0;
    case RDMA_OPTION_ID_AFONLY:
      if (state_ != CmState::kIdle) return EINVAL;
      is_ipv6_only_ = number != 0;
      return 0;
    default: return ENOSYS;
  }
}

// ---- Events

rdma_ucm_event_resp CmId::event(CmEventType type, int status) const noexcept {
  rdma_ucm_event_resp body{};
  body.uid = uid_;
  body.id = number_;
  body.event = static_cast<std::uint32_t>(type);
  body.status = static_cast<std::uint32_t>(status);
  return body;
}

void CmId::push(rdma_ucm_event_resp body) {
  // The program does not know an identifier before it has accepted its connection: the kernel drops such events.
  if (uid_ == 0) return;
  file_->push({body, shared_from_this(), nullptr, 0});
}

void CmId::post(CmEventType type, int status) {
  push(event(type, status));
}

namespace {

/// Fills in the queue pair of the sender of `from`. The resources of the sender limit the depth of the receiver, and the
/// reverse.
void fill_connection(rdma_ucm_event_resp& body, const CmMessage& from, std::uint8_t private_room) {
  rdma_ucm_conn_param& to = body.param.conn;
  to.qp_num = from.qpn;
  to.responder_resources = from.initiator_depth;
  to.initiator_depth = from.responder_resources;
  to.flow_control = from.flow_control;
  to.retry_count = from.retry_count;
  to.rnr_retry_count = from.rnr_retry_count;
  to.srq = from.has_srq;
  to.private_data_len = private_room;
  std::memcpy(to.private_data, from.private_data, std::min(private_room, from.private_length));
  body.ece = {from.ece_vendor, from.ece_options};
}

}  // namespace

void CmId::post_connection(CmEventType type, int status, const CmMessage& from, std::uint8_t private_room) {
  rdma_ucm_event_resp body = event(type, status);
  fill_connection(body, from, private_room);
  push(body);
}

void CmId::post_written(CmEventType type, std::uint32_t status, std::uint64_t argument) {
  rdma_ucm_event_resp body = event(type, 0);
  body.status = status;
  std::memcpy(&body.param, &argument, sizeof(argument));
  push(body);
}

void CmId::post_datagram(CmEventType type, int status, const CmMessage& from, std::uint8_t private_room) {
  rdma_ucm_event_resp body = event(type, status);
  rdma_ucm_ud_param& to = body.param.ud;
  to.qp_num = from.qpn;
  to.qkey = from.qkey;
  fill_address(to.ah_attr, service_.devices().gid(target_));
  to.private_data_len = private_room;
  std::memcpy(to.private_data, from.private_data, std::min(private_room, from.private_length));
  push(body);
}

// ---- The link

void CmId::wait_for(milliseconds time) {
  deadline_ = Clock::now() + time;
}

void CmId::drop_link() {
  if (!link_) return;
  service_.forget_socket(*this, link_->fd());
  link_.reset();
}

void CmId::start_link() {
  link_->send(request_);
  deadline_ = give_up_at_;
  service_.update(*this);
}

int CmId::open_link_on_this_host() {
  UniqueFd socket = connect_to_listener(port_space_, target_);
  if (!socket) return errno;
  link_.emplace(std::move(socket));
  return 0;
}

int CmId::open_link() {
  if (!device().is_up()) return ENETDOWN;
  if (service_.devices().is_on_this_host(target_)) return open_link_on_this_host();
  if (service_.settings().tcp_use == TcpUse::kNever) return EHOSTUNREACH;
  UniqueFd socket = tcp_connect({false, source_.gid, target_.gid, target_.interface}, kCmPort);
  if (!socket) return errno;
  link_.emplace(std::move(socket));
  return 0;
}

/// Returns false: it has tried for long enough.
bool CmId::try_again_without_listener() {
  if (state_ != CmState::kConnecting || Clock::now() >= refused_at_) return false;
  drop_link();
  wait_for(kNextCmTry);
  service_.update(*this);
  return true;
}

/// No process listens for the initiator. Tries again for a while.
void CmId::find_no_listener() {
  if (try_again_without_listener()) return;
  is_datagram() ? fail(CmEventType::kUnreachable, static_cast<int>(CmLookUpStatus::kUnsupported))
                : fail(CmEventType::kRejected, static_cast<int>(CmReason::kNoListener));
}

/// The initiator's connection attempt has ended.
void CmId::fail(CmEventType event, int status) {
  drop_link();
  deadline_.reset();
  state_ = CmState::kFailed;
  if (is_datagram()) {
    post_datagram(event, status, CmMessage{}, 0);
  } else {
    post(event, status);
  }
  service_.update(*this);
}

CmMessage CmId::message(CmKind kind) const {
  CmMessage message;
  message.kind = kind;
  message.psn = psn_;
  return message;
}

void CmId::put_queue_pair(CmMessage& message, std::uint32_t qpn) const {
  message.qpn = qpn & kNumberMask;
  if (!is_datagram()) message.secret = QueuePairs::secret_of(message.qpn).value_or(TcpSecret{});
}

int CmId::put_private(CmMessage& message, const std::uint8_t* data, std::uint8_t length, std::uint8_t room) const {
  if (length > room) return EINVAL;
  std::copy_n(data, length, message.private_data);
  message.private_length = length;
  return 0;
}

// ---- The initiator

int CmId::connect(const rdma_ucm_conn_param& parameters, const rdma_ucm_ece& ece) {
  if (state_ != CmState::kRouteResolved || parameters.valid == 0) return EINVAL;
  if (const int error = service_.start(); error != 0) return error;
  request_ = message(is_datagram() ? CmKind::kLookUp : CmKind::kConnect);
  const std::uint8_t room = room_of(is_datagram() ? kLookUpRoom : kConnectRoom, target_.family);
  if (const int error = put_private(request_, parameters.private_data, parameters.private_data_len, room); error != 0)
    return error;
  request_.port_space = port_space_;
  request_.family = target_.family;
  request_.source = source_.gid;
  request_.source_port = source_.port;
  request_.target = target_.gid;
  request_.target_port = target_.port;
  put_queue_pair(request_, parameters.qp_num);
  request_.responder_resources = parameters.responder_resources;
  request_.initiator_depth = parameters.initiator_depth;
  request_.flow_control = parameters.flow_control;
  request_.retry_count = std::min<std::uint8_t>(parameters.retry_count, 7);
  request_.rnr_retry_count = std::min<std::uint8_t>(parameters.rnr_retry_count, 7);
  request_.has_srq = parameters.srq;
  request_.ack_timeout = ack_timeout_;
  request_.traffic_class = traffic_class_;
  request_.ece_vendor = ece.vendor_id;
  request_.ece_options = ece.attr_mod;
  responder_resources_ = parameters.responder_resources;
  initiator_depth_ = parameters.initiator_depth;
  retry_count_ = request_.retry_count;
  state_ = CmState::kConnecting;
  give_up_at_ = Clock::now() + kLongestAnswer;
  refused_at_ =
      Clock::now() + (service_.devices().is_on_this_host(target_) ? kWithoutListener : kWithoutListenerElsewhere);
  wait_for(milliseconds(0));  // the service's thread opens the link, and reports a failure by an event
  service_.update(*this);
  return 0;
}

int CmId::confirm() {
  if (state_ != CmState::kAnswered) return EINVAL;
  link_->send(message(CmKind::kReady));
  deadline_.reset();
  state_ = CmState::kEstablished;
  service_.update(*this);
  return 0;
}

// ---- The listener

int CmId::listen(std::uint32_t backlog) {
  if (state_ == CmState::kIdle) {
    CmAddress any;
    any.family = source_.family == AF_UNSPEC ? static_cast<sa_family_t>(AF_INET) : source_.family;
    if (any.family == AF_INET) any.gid.raw[10] = any.gid.raw[11] = 0xff;
    if (const int error = bind(any); error != 0) return error;
  }
  if (state_ != CmState::kBound) return EINVAL;
  if (const int error = service_.start(); error != 0) return error;
  if (const int error = claim_.listen(); error != 0) return error;
  backlog_ = backlog == 0 || backlog > kMaxBacklog ? kMaxBacklog : backlog;
  state_ = CmState::kListening;
  service_.open_host_listener();
  service_.update(*this);
  return 0;
}

bool CmId::listens_to(const ibv_gid& address) const noexcept {
  if (!source_.is_any()) return verbs::equal(source_.gid, address);
  if (source_.family == AF_INET) return verbs::is_mapped_ipv4(address);
  return !is_ipv6_only_ || !verbs::is_mapped_ipv4(address);
}

void CmId::receive_request(CmLink link, const CmMessage& request) {
  const bool is_look_up = request.kind == CmKind::kLookUp;
  if (is_look_up != is_datagram()) {
    link.send(no_listener(request));
    return;
  }
  CmAddress source = source_;
  source.family = request.family;
  source.gid = request.target;
  // Any process may send a request. So nothing is created before it is known that the address is one of this host.
  CmDevices::Place place;
  if (service_.devices().find(source, place) != 0 || !place.device->is_up()) {
    link.send(no_listener(request));
    return;
  }
  auto arrived = service_.create(file_, 0, port_space_, qp_type_);
  arrived->source_ = source;
  arrived->place_ = place;
  arrived->target_.family = request.family;
  arrived->target_.gid = request.source;
  arrived->target_.port = request.source_port;
  arrived->target_.interface = arrived->source_.interface;
  arrived->traffic_class_ = request.traffic_class;
  arrived->ack_timeout_ = request.ack_timeout;
  arrived->retry_count_ = request.retry_count;
  // The resources of the peer limit the requests of this identifier, and the reverse.
  arrived->responder_resources_ = request.initiator_depth;
  arrived->initiator_depth_ = request.responder_resources;
  arrived->peer_ = request;
  arrived->arrived_at_ = weak_from_this();
  arrived->state_ = CmState::kRequested;
  arrived->link_.emplace(std::move(link));
  rdma_ucm_event_resp body = event(CmEventType::kConnectRequest, 0);
  body.id = arrived->number();
  if (is_look_up) {
    rdma_ucm_ud_param& to = body.param.ud;
    to.private_data_len = room_of(kLookUpRoom, request.family);
    std::memcpy(to.private_data, request.private_data, std::min(to.private_data_len, request.private_length));
  } else {
    fill_connection(body, request, room_of(kConnectRoom, request.family));
  }
  ++unread_requests_;
  file_->push({body, shared_from_this(), arrived, 0});
  service_.update(*arrived);
  service_.update(*this);
}

void CmId::request_read() {
  const auto listener = arrived_at_.lock();
  arrived_at_.reset();
  if (!listener) return;
  --listener->unread_requests_;
  service_.update(*listener);
}

int CmId::accept(std::uint64_t uid, const rdma_ucm_conn_param& parameters, const rdma_ucm_ece& ece) {
  if (state_ != CmState::kRequested) return EINVAL;
  CmMessage answer = message(is_datagram() ? CmKind::kFound : CmKind::kAccept);
  const std::uint8_t room = is_datagram() ? kFoundRoom : kAcceptRoom;
  if (const int error = put_private(answer, parameters.private_data, parameters.private_data_len, room); error != 0)
    return error;
  put_queue_pair(answer, parameters.qp_num);
  answer.qkey = parameters.qkey != 0 ? parameters.qkey : kDatagramQkey;
  answer.responder_resources = parameters.responder_resources;
  answer.initiator_depth = parameters.initiator_depth;
  answer.flow_control = parameters.flow_control;
  answer.rnr_retry_count = std::min<std::uint8_t>(parameters.rnr_retry_count, 7);
  answer.has_srq = parameters.srq;
  answer.ece_vendor = ece.vendor_id;
  answer.ece_options = ece.attr_mod;
  responder_resources_ = parameters.responder_resources;
  initiator_depth_ = parameters.initiator_depth;
  uid_ = uid;
  link_->send(answer);
  if (is_datagram()) {
    state_ = CmState::kEstablished;
  } else {
    state_ = CmState::kAccepted;
    wait_for(kLongestAnswer);
  }
  service_.update(*this);
  return 0;
}

int CmId::reject(CmReason reason, const std::uint8_t* private_data, std::uint8_t length) {
  const bool is_initiator = state_ == CmState::kAnswered;
  if (state_ != CmState::kRequested && !is_initiator) return EINVAL;
  CmMessage answer = message(is_datagram() ? CmKind::kFound : CmKind::kReject);
  answer.status =
      is_datagram() ? static_cast<std::uint8_t>(CmLookUpStatus::kRejected) : static_cast<std::uint8_t>(reason);
  if (const int error = put_private(answer, private_data, length, is_datagram() ? kFoundRoom : kRejectRoom); error != 0)
    return error;
  link_->send(answer);
  deadline_.reset();
  state_ = CmState::kFailed;
  service_.update(*this);
  return 0;
}

int CmId::note_established() {
  if (state_ != CmState::kAccepted) return state_ == CmState::kEstablished ? 0 : EINVAL;
  deadline_.reset();
  state_ = CmState::kEstablished;
  post(CmEventType::kEstablished, 0);
  service_.update(*this);
  return 0;
}

// ---- Both sides

int CmId::disconnect() {
  if (is_datagram()) return EINVAL;
  switch (state_) {
    case CmState::kEstablished:
    case CmState::kAnswered:
    case CmState::kAccepted:
      link_->send(message(CmKind::kDisconnect));
      state_ = CmState::kDisconnecting;
      wait_for(kLongestDisconnect);
      service_.update(*this);
      return 0;
    case CmState::kDisconnecting:
    case CmState::kDisconnected: return 0;
    default: return EINVAL;
  }
}

/// True from kAccept on, which each side may follow by kDisconnect.
bool CmId::is_connected() const noexcept {
  if (is_datagram()) return false;
  return state_ == CmState::kAnswered || state_ == CmState::kAccepted || state_ == CmState::kEstablished ||
         state_ == CmState::kDisconnecting;
}

void CmId::end_connection() {
  drop_link();
  state_ = CmState::kDisconnected;
  post(CmEventType::kDisconnected, 0);
  wait_for(kTimeWait);
  service_.update(*this);
}

void CmId::receive(const CmMessage& received) {
  switch (received.kind) {
    case CmKind::kAccept:
      if (state_ != CmState::kConnecting || is_datagram()) return link_ended();
      peer_ = received;
      responder_resources_ = received.initiator_depth;
      initiator_depth_ = received.responder_resources;
      state_ = CmState::kAnswered;
      deadline_.reset();
      return post_connection(CmEventType::kConnectResponse, 0, received, kAcceptRoom);
    case CmKind::kReady:
      if (state_ == CmState::kAccepted) (void)note_established();
      return;
    case CmKind::kReject:
      if (state_ == CmState::kConnecting || state_ == CmState::kAnswered || state_ == CmState::kAccepted) {
        const bool is_unheard = received.status == static_cast<std::uint8_t>(CmReason::kNoListener);
        if (is_unheard && try_again_without_listener()) return;
        drop_link();
        deadline_.reset();
        state_ = CmState::kFailed;
        post_connection(CmEventType::kRejected, received.status, received, kRejectRoom);
      }
      return;
    case CmKind::kDisconnect:
      if (!is_connected()) return link_ended();
      if (!std::exchange(has_answered_disconnect_, true)) link_->send(message(CmKind::kDisconnected));
      [[fallthrough]];
    case CmKind::kDisconnected:
      if (state_ == CmState::kEstablished || state_ == CmState::kAccepted || state_ == CmState::kDisconnecting)
        end_connection();
      return;
    case CmKind::kFound:
      if (state_ != CmState::kConnecting || !is_datagram()) return link_ended();
      if (received.status == static_cast<std::uint8_t>(CmLookUpStatus::kUnsupported)) return find_no_listener();
      if (received.status != static_cast<std::uint8_t>(CmLookUpStatus::kFound))
        return fail(CmEventType::kUnreachable, received.status);
      drop_link();
      deadline_.reset();
      peer_ = received;
      state_ = CmState::kEstablished;
      return post_datagram(CmEventType::kEstablished, 0, received, kFoundRoom);
    case CmKind::kConnect:
    case CmKind::kLookUp: return link_ended();  // only a listener takes these
  }
}

void CmId::link_ended() {
  switch (state_) {
    case CmState::kConnecting:
      // A process that shares the port with the listener's may have accepted the connection, and ended.
      if (try_again_without_listener()) return;
      [[fallthrough]];
    case CmState::kAnswered:
    case CmState::kAccepted:
      if (is_datagram()) return fail(CmEventType::kUnreachable, static_cast<int>(CmLookUpStatus::kRejected));
      return fail(CmEventType::kRejected, static_cast<int>(CmReason::kConsumerDefined));
    case CmState::kEstablished:
      if (is_datagram()) return drop_link();
      [[fallthrough]];
    case CmState::kDisconnecting: return end_connection();
    case CmState::kRequested: state_ = CmState::kFailed; [[fallthrough]];
    default: return drop_link();
  }
}

void CmId::handle_link() {
  const auto self = shared_from_this();
  if (!link_) return;
  if (const int error = link_->flush(); error != 0) {
    // The peer may end before it can receive the request.
    if (state_ != CmState::kConnecting || error == EPIPE || error == ECONNRESET) return link_ended();
    return error == ECONNREFUSED ? find_no_listener() : fail(CmEventType::kUnreachable, -error);
  }
  while (link_) {
    CmMessage received;
    const CmLink::Received what = link_->receive(received);
    if (what == CmLink::Received::kNothing) break;
    if (what == CmLink::Received::kEnd) return link_ended();
    receive(received);
  }
  service_.update(*this);
}

void CmId::handle_deadline() {
  const auto self = shared_from_this();
  deadline_.reset();
  switch (state_) {
    case CmState::kConnecting: {
      const bool is_late = Clock::now() >= give_up_at_;
      const int error = link_ || is_late ? ETIMEDOUT : open_link();
      if (error == 0) return start_link();
      if (error == EAGAIN) {
        wait_for(kNextCmTry);
        return service_.update(*this);
      }
      if (error == ECONNREFUSED) return find_no_listener();
      return fail(CmEventType::kUnreachable, -error);
    }
    case CmState::kAccepted: return fail(CmEventType::kUnreachable, -ETIMEDOUT);
    case CmState::kDisconnecting: return end_connection();
    case CmState::kDisconnected: return post(CmEventType::kTimeWaitExit, 0);
    default: return;
  }
}

void CmId::destroy() {
  switch (state_) {
    case CmState::kRequested:
    case CmState::kAnswered: (void)reject(CmReason::kConsumerDefined, nullptr, 0); break;
    case CmState::kEstablished:
    case CmState::kAccepted:
      if (link_) link_->send(message(CmKind::kDisconnect));
      break;
    default: break;
  }
  request_read();
  drop_link();
  service_.forget_socket(*this, claim_.socket());
  claim_.release();
  deadline_.reset();
  state_ = CmState::kFailed;
}

void CmId::abandon() noexcept {
  claim_.release();
  link_.reset();
}

// ---- Multicast groups

int CmId::join(std::uint32_t membership, std::uint64_t uid, const CmAddress& group) {
  if (!is_datagram() || !has_device() || state_ == CmState::kListening) return EINVAL;
  if (!is_multicast(group.gid)) return EINVAL;
  rdma_ucm_event_resp body = event(CmEventType::kMulticastJoin, 0);
  body.uid = uid;
  body.param.ud.qp_num = kMulticastQpn;
  body.param.ud.qkey = kDatagramQkey;
  ib_uverbs_ah_attr& address = body.param.ud.ah_attr;
  if (service_.devices().is_infiniband()) {
    const ibv_gid there = infiniband_group(group, port_space_ == RDMA_PS_UDP);
    fill_address(address, there);
    address.is_global = 1;
    address.dlid = lid_of_group(there);
  } else {
    fill_address(address, group.gid);
  }
  file_->push({body, shared_from_this(), nullptr, membership});
  return 0;
}

// ---- Attributes of queue pairs

void CmId::fill_address(ib_uverbs_ah_attr& address, const ibv_gid& target_gid) const {
  address = {};
  address.port_num = 1;
  address.is_global = service_.devices().is_infiniband() ? 0 : 1;
  address.dlid = service_.devices().lid_of(target_gid);
  std::memcpy(address.grh.dgid, target_gid.raw, sizeof(address.grh.dgid));
  address.grh.sgid_index = place_.gid_index;
  address.grh.hop_limit = kCmHopLimit;
  address.grh.traffic_class = traffic_class_;
}

int CmId::queue_pair_attributes(std::uint32_t state, ib_uverbs_qp_attr& attributes) const {
  if (!has_device()) return EINVAL;
  attributes = {};
  attributes.qp_state = state;
  attributes.qp_attr_mask = IBV_QP_STATE;
  const bool is_initiator_of_xrc = qp_type_ == IBV_QPT_XRC_SEND;
  const bool has_acknowledgements = qp_type_ != IBV_QPT_UC;
  if (state == IBV_QPS_INIT) {
    attributes.qp_attr_mask |= IBV_QP_PKEY_INDEX | IBV_QP_PORT;
    attributes.port_num = 1;
    if (is_datagram()) {
      attributes.qp_attr_mask |= IBV_QP_QKEY;
      attributes.qkey = kDatagramQkey;
    } else {
      attributes.qp_attr_mask |= IBV_QP_ACCESS_FLAGS;
      attributes.qp_access_flags = IBV_ACCESS_REMOTE_WRITE;
      // Before the peers have agreed on resources, everything that a connection may need.
      if (has_acknowledgements) attributes.qp_access_flags |= IBV_ACCESS_REMOTE_READ | IBV_ACCESS_REMOTE_ATOMIC;
    }
    return 0;
  }
  if (is_datagram()) {
    if (state == IBV_QPS_RTS) attributes.qp_attr_mask |= IBV_QP_SQ_PSN;
    return state == IBV_QPS_RTR || state == IBV_QPS_RTS ? 0 : EINVAL;
  }
  const bool peer_is_known = state_ == CmState::kAnswered || state_ == CmState::kRequested ||
                             state_ == CmState::kAccepted || state_ == CmState::kEstablished;
  if (!peer_is_known) return EINVAL;
  if (state == IBV_QPS_RTR) {
    attributes.qp_attr_mask |= IBV_QP_AV | IBV_QP_PATH_MTU | IBV_QP_DEST_QPN | IBV_QP_RQ_PSN;
    fill_address(attributes.ah_attr, service_.devices().gid(target_));
    attributes.path_mtu = IBV_MTU_4096;
    attributes.dest_qp_num = peer_.qpn;
    attributes.rq_psn = peer_.psn;
    // The program now connects its queue pair.
    if (peer_.secret != TcpSecret{}) expect_secret(service_.devices().gid(target_), peer_.qpn, peer_.secret);
    if (has_acknowledgements && !is_initiator_of_xrc) {
      attributes.qp_attr_mask |= IBV_QP_MAX_DEST_RD_ATOMIC | IBV_QP_MIN_RNR_TIMER;
      attributes.max_dest_rd_atomic = std::min<std::uint8_t>(responder_resources_, kMaxReadDepth);
    }
    return 0;
  }
  if (state != IBV_QPS_RTS) return EINVAL;
  attributes.qp_attr_mask |= IBV_QP_SQ_PSN;
  attributes.sq_psn = psn_;
  if (has_acknowledgements) {
    attributes.qp_attr_mask |= IBV_QP_TIMEOUT;
    attributes.timeout = ack_timeout_;
  }
  if (has_acknowledgements && qp_type_ != IBV_QPT_XRC_RECV) {
    attributes.qp_attr_mask |= IBV_QP_RETRY_CNT | IBV_QP_RNR_RETRY | IBV_QP_MAX_QP_RD_ATOMIC;
    attributes.retry_cnt = retry_count_;
    attributes.rnr_retry = peer_.rnr_retry_count;
    attributes.max_rd_atomic = std::min<std::uint8_t>(initiator_depth_, kMaxReadDepth);
  }
  return 0;
}

}  // namespace rdmacomm::softdev
