// A client of 01_hello that writes more bytes than the server's memory has: the library refuses the request.
// write_too_much HOST:PORT
#include "../two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

Status no_server() {
  return make_error(Errc::kInvalidArgument, "give the HOST:PORT of a 01_hello");
}

Status write_to(const HostPort& address) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto inbox = server ? server->remote_region("inbox") : server.error();
  const auto letter = inbox ? RDMABuffer::allocate(session.device(), {.block_bytes = 8192}) : inbox.error();
  if (!letter) return letter.error();
  return server->channel().write(letter->at(0), *inbox, {.immediate = 42}).wait(5s).status();
}

int main(int count, char** words) {
  return two_ends::run(count, words, no_server, write_to);
}
