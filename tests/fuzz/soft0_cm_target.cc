// Messages of a peer to soft0's connection manager: to a listener, to an identifier that the listener has made, and to
// an initiator.
#include <fcntl.h>
#include <rdma/rdma_user_cm.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <memory>
#include <optional>

#include "fuzz/properties.h"
#include "fuzz/target.h"
#include "softdev/cm/cm_file.h"
#include "softdev/cm/cm_id.h"
#include "softdev/cm/cm_message.h"
#include "softdev/cm/cm_service.h"
#include "softdev/shared/unix_packet.h"

namespace rdmacomm::fuzz {
namespace {
namespace soft0_cm_target {

using softdev::CmAddress;
using softdev::CmEvent;
using softdev::CmEventType;
using softdev::CmFile;
using softdev::CmId;
using softdev::CmKind;
using softdev::CmMessage;
using softdev::CmState;

constexpr ibv_gid kHere = {{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xff, 127, 0, 0, 1}};

/// The program's action between two messages, by the first byte of the input.
enum Role : std::uint8_t { kAccepts, kRejects, kDestroys, kInitiates, kInitiatesDatagrams, kRoles };

CmAddress here(std::uint16_t port) {
  CmAddress address;
  address.family = AF_INET;
  address.gid = kHere;
  address.port = port;
  return address;
}

/// The connection manager of the process. Its thread waits for the lock, so that the input alone decides what happens.
struct Scene {
  softdev::CmService service{{softdev::DeviceIdentity{.name = "soft0"}}, softdev::Settings{}};
  std::unique_lock<std::mutex> lock{service.mutex()};
};
Scene& scene() {
  static auto* const only = new Scene;
  return *only;
}

struct Program {
  std::shared_ptr<CmFile> file = std::make_shared<CmFile>();
  UniqueFd events{file->open(O_NONBLOCK | O_CLOEXEC)};
  UniqueFd peer;
  std::shared_ptr<CmId> id;

  ~Program() {
    for (const auto& one : scene().service.of(*file)) scene().service.remove(*one);
  }

  /// Takes all events, and checks them.
  void read_events() {
    char byte = 0;
    while (read(events.get(), &byte, 1) == 1) {
      CmEvent event;
      if (!file->pop(event)) continue;
      if (event.arrived) {
        event.arrived->request_read();
        RDMACOMM_FUZZ_CHECK(event.arrived->state() == CmState::kRequested);
        id = event.arrived;
      }
      check(event.body, event.id->is_datagram());
    }
  }

  static void check(const rdma_ucm_event_resp& body, bool is_datagram) {
    const auto type = static_cast<CmEventType>(body.event);
    if (is_datagram && type != CmEventType::kConnectRequest) {
      RDMACOMM_FUZZ_CHECK(body.param.ud.qp_num <= 0xffffff);
    } else if (!is_datagram) {
      RDMACOMM_FUZZ_CHECK(body.param.conn.qp_num <= 0xffffff);
      RDMACOMM_FUZZ_CHECK(body.param.conn.retry_count <= 7 && body.param.conn.rnr_retry_count <= 7);
    }
    if (type == CmEventType::kRejected && !is_datagram) RDMACOMM_FUZZ_CHECK(static_cast<int>(body.status) != 0);
  }

  void react(std::uint8_t role) {
    if (!id) return;
    rdma_ucm_conn_param parameters{};
    parameters.valid = 1;
    if (role == kAccepts) {
      (void)id->accept(7, parameters, {});
    } else if (role == kRejects) {
      (void)id->reject(softdev::CmReason::kConsumerDefined, nullptr, 0);
    } else if (role == kDestroys) {
      scene().service.remove(*std::exchange(id, nullptr));
      return;
    } else if (id->state() == CmState::kAnswered) {
      (void)id->confirm();
    }
    ib_uverbs_qp_attr attributes{};
    for (const std::uint32_t state : {IBV_QPS_INIT, IBV_QPS_RTR, IBV_QPS_RTS}) {
      if (id->queue_pair_attributes(state, attributes) == 0) {
        RDMACOMM_FUZZ_CHECK(attributes.dest_qp_num <= 0xffffff && attributes.timeout <= 31);
      }
    }
  }
};

/// The first message of the input, as the service takes it: from the address that it names.
std::optional<CmMessage> request_in(Bytes input) {
  CmMessage request;
  if (input.size() < sizeof(request)) return std::nullopt;
  std::memcpy(static_cast<void*>(&request), input.data(), sizeof(request));
  if (!is_valid(request) || !is_request(request)) return std::nullopt;
  return request;
}

bool send_to(const UniqueFd& socket, Bytes bytes) {
  return ::send(socket.get(), bytes.data(), bytes.size(), MSG_DONTWAIT | MSG_NOSIGNAL) ==
         static_cast<ssize_t>(bytes.size());
}

void be_listener(Program& program, std::uint8_t role, Bytes& input) {
  const std::optional<CmMessage> request = request_in(input);
  if (!request) return;
  input = input.subspan(sizeof(CmMessage));
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) return;
  program.peer.reset(ends[1]);
  const bool is_datagram = (request->port_space & 1) != 0;
  const auto listener = scene().service.create(program.file, 1, RDMA_PS_TCP,
                                               static_cast<std::uint8_t>(is_datagram ? IBV_QPT_UD : IBV_QPT_RC));
  listener->receive_request(softdev::CmLink(UniqueFd(ends[0])), *request);
  program.read_events();
  program.react(role);
}

void be_initiator(Program& program, std::uint8_t role) {
  const bool is_datagram = role == kInitiatesDatagrams;
  const std::uint16_t port_space = is_datagram ? RDMA_PS_UDP : RDMA_PS_TCP;
  CmAddress port = here(0);
  softdev::PortClaim claim;
  if (claim.take(port_space, port, false, false) != 0 || claim.listen() != 0) return;
  const auto id = scene().service.create(program.file, 1, port_space,
                                         static_cast<std::uint8_t>(is_datagram ? IBV_QPT_UD : IBV_QPT_RC));
  rdma_ucm_conn_param parameters{};
  parameters.valid = 1;
  if (id->resolve_address({}, port) != 0 || id->resolve_route() != 0 || id->connect(parameters, {}) != 0) return;
  id->handle_deadline();  // opens the link
  program.peer.reset(accept4(claim.socket(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
  program.id = id;
}

void run(Bytes input) {
  if (input.empty()) return;
  const auto role = static_cast<std::uint8_t>(std::to_integer<unsigned>(input[0]) % kRoles);
  input = input.subspan(1);
  Program program;
  if (role >= kInitiates) {
    be_initiator(program, role);
  } else {
    be_listener(program, role, input);
  }
  if (!program.peer) return;
  while (!input.empty()) {
    const Bytes next = input.first(std::min(input.size(), sizeof(CmMessage)));
    input = input.subspan(next.size());
    if (!send_to(program.peer, next)) break;
    if (program.id) program.id->handle_link();
    program.read_events();
    program.react(role);
  }
  program.peer.reset();
  if (program.id) program.id->handle_link();
  program.read_events();
}

CmMessage seed(CmKind kind) {
  CmMessage message;
  message.kind = kind;
  message.port_space = RDMA_PS_TCP;
  message.family = AF_INET;
  message.source = message.target = kHere;
  message.source_port = 1;
  message.target_port = 2;
  message.qpn = 0x1234;
  message.private_length = 4;
  return message;
}

std::vector<std::byte> input_of(Role role, std::initializer_list<CmMessage> messages) {
  std::vector<std::byte> bytes{static_cast<std::byte>(role)};
  for (const CmMessage& message : messages) {
    const auto more = std::as_bytes(std::span(&message, 1));
    bytes.insert(bytes.end(), more.begin(), more.end());
  }
  return bytes;
}

std::vector<Seed> seeds() {
  CmMessage look_up = seed(CmKind::kLookUp);
  look_up.port_space = RDMA_PS_UDP;
  CmMessage rejected = seed(CmKind::kReject);
  rejected.status = static_cast<std::uint8_t>(softdev::CmReason::kConsumerDefined);
  return {
      {"accepted", input_of(kAccepts, {seed(CmKind::kConnect), seed(CmKind::kReady), seed(CmKind::kDisconnect)})},
      {"rejected", input_of(kRejects, {seed(CmKind::kConnect)})},
      {"destroyed", input_of(kDestroys, {seed(CmKind::kConnect)})},
      {"datagrams", input_of(kAccepts, {look_up})},
      {"initiator", input_of(kInitiates, {seed(CmKind::kAccept), seed(CmKind::kDisconnect)})},
      {"initiator_rejected", input_of(kInitiates, {rejected})},
      {"initiator_of_datagrams", input_of(kInitiatesDatagrams, {seed(CmKind::kFound)})},
  };
}

}  // namespace soft0_cm_target
}  // namespace

const Target soft0_cm{"soft0_cm", soft0_cm_target::run, soft0_cm_target::seeds};

}  // namespace rdmacomm::fuzz
