// A client of 01_hello that writes more bytes than the server's memory has: the library refuses the request.
// write_too_much HOST:PORT
#include "client_of_hello.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

Status write_to(const HostPort& address) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto inbox = server ? server->remote_region("inbox") : server.error();
  const auto letter = inbox ? RDMABuffer::allocate(session.device(), {.block_bytes = 8192}) : inbox.error();
  if (!letter) return letter.error();
  return server->channel().write(letter->at(0), *inbox, {.immediate = 42}).wait(5s).status();
}

int main(int count, char** words) {
  return run_client(count, words, write_to);
}
