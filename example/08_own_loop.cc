// An endpoint in the program's own event loop: its descriptor and a timer's are in one epoll_wait(2).
// The loop polls the endpoint until it finds no completion, and only then sleeps.
#include <sys/epoll.h>
#include <sys/timerfd.h>
#include <unistd.h>

#include <array>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

Status use_epoll(HcaConfig& hca, const PeerInfo&) {
  hca.polling_mode = PollingMode::kEpoll;
  return {};
}

Status failure(const char* what) {
  return make_error(std::error_code(errno, std::generic_category()), what);
}

Status serve() {  // answers each message with an empty one
  const SessionFunctions hooks{.lazy_config_hca = use_epoll, .post_connecting = [](const EndPoint& client) -> Status {
                                 return client.channel().post_recv({});
                               }};
  ServerSession server({.address = {.port = 0}}, hooks);
  if (Status listening = two_ends::listen(server); !listening) return listening;
  const auto client = server.accept(60s);
  if (!client) return client.error();
  for (;;) {
    const auto received = client->next(60s);
    if (received.code() == Errc::kPeerClosed) return {};
    if (Status ok = two_ends::outcome(received); !ok) return ok;
    if (received->operation != Operation::kRecv) continue;
    if (Outcome posted = client->channel().post_recv({}); !posted) return posted;
    if (Outcome posted = client->channel().post_send({}); !posted) return posted;
  }
}

/// Takes all completions, so that the descriptor reports the next one. Returns the number of answers among them.
Result<int> take_answers(const EndPoint& server) {
  for (int answers = 0;;) {
    std::array<Completion, 16> room;
    const auto taken = server.poll_before_sleep(room);
    if (!taken) return taken.error();
    if (taken->empty()) return answers;
    for (const Completion& each : *taken) {
      if (!each.ok()) return each.status().error();
      answers += each.operation == Operation::kRecv ? 1 : 0;
    }
  }
}

Status tick(const HostPort& address) {  // a message each 10 ms, ten times
  ClientSession session({.address = address}, {.lazy_config_hca = use_epoll});
  const auto server = session.connect();
  if (!server) return server.error();
  const int timer = timerfd_create(CLOCK_MONOTONIC, TFD_CLOEXEC);
  const itimerspec each_10_ms{.it_interval = {0, 10'000'000}, .it_value = {0, 10'000'000}};
  if (timer < 0 || timerfd_settime(timer, 0, &each_10_ms, nullptr) != 0) return failure("cannot create a timer");
  const int loop = epoll_create1(EPOLL_CLOEXEC);
  for (const int descriptor : {timer, server->fd()}) {
    epoll_event readable{.events = EPOLLIN, .data = {.fd = descriptor}};
    if (epoll_ctl(loop, EPOLL_CTL_ADD, descriptor, &readable) != 0) return failure("cannot watch a descriptor");
  }
  for (int answers = 0; answers < 10;) {
    const auto more = take_answers(*server);
    if (!more) return more.error();
    answers += *more;
    if (*more > 0) continue;
    epoll_event event{};
    if (epoll_wait(loop, &event, 1, 10'000) != 1) return failure("no event for 10 s");
    if (event.data.fd != timer) continue;
    std::uint64_t expirations = 0;
    if (read(timer, &expirations, sizeof(expirations)) < 0) return failure("cannot read the timer");
    if (Outcome posted = server->channel().post_recv({}); !posted) return posted;
    if (Outcome posted = server->channel().post_send({}); !posted) return posted;
  }
  std::cout << "ten answers" << std::endl;
  close(loop);
  close(timer);
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, tick);
}
