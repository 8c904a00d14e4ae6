// A client of 01_hello that waits for a message, which that server never sends: it waits until the server ends.
// wait_for_message HOST:PORT
#include "client_of_hello.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

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
  return run_client(count, words, wait_for);
}
