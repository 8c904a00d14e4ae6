// Data from a client that connects to soft0: a greeting, and datagrams after it.
#include <cstring>

#include "fuzz/properties.h"
#include "fuzz/soft0_scene.h"
#include "softdev/host/target_route.h"
#include "softdev/tcp/tcp_introduction.h"
#include "softdev/tcp/tcp_protocol.h"
#include "softdev/tcp/tcp_unidentified.h"

namespace rdmacomm::fuzz {
namespace {
namespace soft0_greeting_target {

using softdev::GreetingKind;
using softdev::Service;
using softdev::TcpDatagramAddress;
using softdev::TcpGreeting;
using softdev::TcpRequest;
using softdev::TcpWelcome;
using softdev::Welcome;

// Placeholders in an input for numbers of this process, which differ between processes.
constexpr std::uint32_t kConnected = 0xfffff1;
constexpr std::uint64_t kUsualPath = 0x68746170;
constexpr std::uint32_t kDatagram = 0xfffff2;
constexpr std::uint32_t kPeer = 0xfffff3;
constexpr int kRounds = 4;

template <typename Message>
std::vector<std::byte> bytes_of(const Message& message) {
  const auto bytes = std::as_bytes(std::span(&message, 1));
  return {bytes.begin(), bytes.end()};
}

TcpGreeting greeting_in(Bytes input, Soft0Scene& scene) {
  TcpGreeting greeting;
  std::memcpy(static_cast<void*>(&greeting), input.data(), sizeof(greeting));
  if (greeting.target_qpn == kConnected) greeting.target_qpn = scene.connected()->qp_num;
  if (greeting.target_qpn == kDatagram) greeting.target_qpn = scene.datagram()->qp_num;
  if (greeting.initiator_qpn == kPeer) greeting.initiator_qpn = scene.peer();
  if (greeting.path == kUsualPath) greeting.path = scene.path();
  return greeting;
}

/// Half of the greetings appear to come from this host, the others from another host.
softdev::Route way_back(Bytes said, Soft0Scene& scene) {
  constexpr std::size_t kToken = offsetof(TcpGreeting, token);
  const bool is_far = said.size() > kToken && (said[kToken] & std::byte{1}) != std::byte{};
  return is_far ? scene.route() : softdev::loopback_route();
}

std::vector<std::byte> translated(Bytes input, Soft0Scene& scene) {
  std::vector<std::byte> bytes(input.begin(), input.end());
  if (bytes.size() < sizeof(TcpGreeting)) return bytes;
  const TcpGreeting greeting = greeting_in(input, scene);
  std::memcpy(bytes.data(), &greeting, sizeof(greeting));
  // The source address of a datagram is set to that of this host, unless the input has one.
  constexpr std::size_t kSource = sizeof(TcpGreeting) + sizeof(TcpRequest);
  if (bytes.size() >= kSource + sizeof(ibv_gid) && bytes[kSource] == std::byte{}) {
    std::memcpy(bytes.data() + kSource, &scene.gid(), sizeof(ibv_gid));
  }
  return bytes;
}

/// The output is empty or one welcome. A refusal contains no secret and no MTU.
void check_welcome(Bytes output, bool stays) {
  if (output.empty()) {
    RDMACOMM_FUZZ_CHECK(!stays);
    return;
  }
  RDMACOMM_FUZZ_CHECK(output.size() == sizeof(TcpWelcome));
  TcpWelcome welcome;
  std::memcpy(static_cast<void*>(&welcome), output.data(), sizeof(welcome));
  RDMACOMM_FUZZ_CHECK(welcome.magic == softdev::kTcpMagic && welcome.version == softdev::kTcpVersion);
  RDMACOMM_FUZZ_CHECK(welcome.answer >= Welcome::kYes && welcome.answer <= Welcome::kSoon);
  RDMACOMM_FUZZ_CHECK((welcome.answer == Welcome::kYes) == stays);
  if (!stays)
    RDMACOMM_FUZZ_CHECK(welcome.path_mtu == 0 && welcome.read_depth == 0 && welcome.secret == softdev::TcpSecret{});
}

/// A client that is accepted without a confirmation must have connected to a queue pair for datagrams.
void check_stay(Bytes said, Soft0Scene& scene) {
  RDMACOMM_FUZZ_CHECK(said.size() >= sizeof(TcpGreeting));
  const TcpGreeting greeting = greeting_in(said, scene);
  RDMACOMM_FUZZ_CHECK(greeting.magic == softdev::kTcpMagic && greeting.version == softdev::kTcpVersion);
  RDMACOMM_FUZZ_CHECK(greeting.kind == GreetingKind::kConnection && greeting.service == Service::kDatagram);
  RDMACOMM_FUZZ_CHECK(greeting.target_qpn == scene.datagram()->qp_num && greeting.initiator_qpn != 0);
}

/// Uses the input as the answer to a local greeting.
void check_answer(Bytes input) {
  if (input.empty()) return;
  Soft0Input ends(input);
  softdev::TcpIntroduction introduction{TcpGreeting{}};
  const auto heard = introduction.welcome(ends.socket.get());
  RDMACOMM_FUZZ_CHECK(heard.has_value());
  if (heard->answer != Welcome::kYes) return;
  const TcpWelcome good;
  RDMACOMM_FUZZ_CHECK(input.size() >= sizeof(TcpWelcome));
  RDMACOMM_FUZZ_CHECK(std::memcmp(input.data(), &good, offsetof(TcpWelcome, answer)) == 0);
}

void run(Bytes input) {
  static Soft0Scene scene;
  check_answer(input);
  const auto said = translated(input, scene);
  Soft0Input ends(said);
  softdev::TcpUnidentified unidentified(scene.context().premises().tcp, std::move(ends.socket), way_back(said, scene),
                                        1);
  bool goes_on = true;
  for (int round = 0; goes_on && round < kRounds; ++round) goes_on = unidentified.progress();
  const auto successor = unidentified.successor();
  check_welcome(ends.output(), successor != nullptr);
  if (successor == nullptr) return;
  check_stay(said, scene);
  scene.begin_datagrams();
  scene.post_receives(scene.datagram());
  goes_on = true;
  for (int round = 0; goes_on && round < kRounds; ++round) goes_on = successor->progress();
  RDMACOMM_FUZZ_CHECK(ends.output().empty());
  scene.check_completions(0);
  scene.take_events();
}

TcpGreeting greeting(GreetingKind kind, Service service, std::uint32_t target, bool is_far = false) {
  TcpGreeting greeting;
  greeting.kind = kind;
  greeting.service = service;
  greeting.initiator_qpn = kPeer;
  greeting.target_qpn = target;
  greeting.path_mtu = 4096;
  greeting.path = kUsualPath;
  greeting.token = is_far ? 3 : 2;
  return greeting;
}

std::vector<std::byte> datagram(std::uint32_t length, std::uint32_t key) {
  TcpRequest head;
  head.opcode = IBV_WR_SEND;
  head.length = length;
  head.key = key;
  TcpDatagramAddress address;
  address.hop_limit = 1;
  address.is_global = 1;
  std::vector<std::byte> bytes = bytes_of(head) + bytes_of(address);
  bytes.resize(bytes.size() + length, std::byte{7});
  return bytes;
}

std::vector<Seed> seeds() {
  const auto to_datagrams = bytes_of(greeting(GreetingKind::kConnection, Service::kDatagram, kDatagram));
  const auto from_afar = bytes_of(greeting(GreetingKind::kConnection, Service::kDatagram, kDatagram, true));
  TcpGreeting future = greeting(GreetingKind::kConnection, Service::kReliable, kConnected);
  future.version = softdev::kTcpVersion + 1;
  return {
      {"connection", bytes_of(greeting(GreetingKind::kConnection, Service::kReliable, kConnected))},
      {"confirm", bytes_of(greeting(GreetingKind::kConfirm, Service::kReliable, kConnected))},
      {"call", bytes_of(greeting(GreetingKind::kCall, Service::kReliable, kConnected))},
      {"unknown_number", bytes_of(greeting(GreetingKind::kConnection, Service::kReliable, 0x123456))},
      {"another_version", bytes_of(future)},
      {"welcome", bytes_of(TcpWelcome{.answer = Welcome::kYes, .path_mtu = 1024})},
      {"refusal", bytes_of(TcpWelcome{.answer = Welcome::kRefused})},
      {"cut", std::vector<std::byte>(to_datagrams.begin(), to_datagrams.end() - 1)},
      {"datagram", to_datagrams + datagram(16, Soft0Scene::kQKey)},
      {"datagram_of_another_host", from_afar + datagram(16, Soft0Scene::kQKey)},
      {"datagrams", to_datagrams + datagram(24, Soft0Scene::kQKey) + datagram(0, Soft0Scene::kQKey)},
      {"datagram_that_is_too_long", to_datagrams + datagram(200, Soft0Scene::kQKey)},
      {"datagram_of_another_key", to_datagrams + datagram(16, 1)},
      {"http", fuzz::bytes_of("GET / HTTP/1.1\r\n\r\n")},
  };
}

}  // namespace soft0_greeting_target
}  // namespace

const Target soft0_greeting{"soft0_greeting", soft0_greeting_target::run, soft0_greeting_target::seeds};

}  // namespace rdmacomm::fuzz
