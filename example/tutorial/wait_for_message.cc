// A client of 01_hello that waits for a message, which that server never sends: it waits until the server ends.
// wait_for_message HOST:PORT
#include "../two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

Status no_server() {
  return make_error(Errc::kInvalidArgument, "give the HOST:PORT of a 01_hello");
}

Status wait_for(const HostPort& address) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto answer = server ? RDMABuffer::allocate(session.device(), {}) : server.error();
  if (!answer) return answer.error();
  const PostedRequest message = server->channel().recv(answer->at(0));
  std::cout << "waiting for a message" << std::endl;
  const auto received = message.wait(60s);
  if (received.code() == Errc::kPeerLost) std::cout << "the server is lost; a real program connects again" << std::endl;
  return received.status();
}

int main(int count, char** words) {
  return two_ends::run(count, words, no_server, wait_for);
}
