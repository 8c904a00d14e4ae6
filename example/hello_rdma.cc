#include <cstring>
#include <iostream>

#include "rdmacomm/rdmacomm.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

Status say_hello() {  // both ends in one process, so that it runs by itself
  ServerSession server({.address = {.host = "127.0.0.1", .port = 0}});
  if (Status started = server.start(); !started) return started;
  ClientSession client({.address = {.host = "127.0.0.1", .port = server.port()}});
  const auto endpoint = client.connect();  // TCP, then queue pairs: INIT -> RTR -> RTS
  if (!endpoint) return endpoint.error();
  const auto inbox = RDMABuffer::allocate(server.device(), {.remote_access = RemoteAccess::kWrite});
  const auto letter = RDMABuffer::allocate(client.device(), {});
  if (!inbox || !letter) return (inbox ? letter : inbox).error();
  std::memcpy(letter->data(), "hello", 6);
  if (Outcome posted = endpoint->channel().post_write(letter->at(0), inbox->remote_region()); !posted) return posted;
  const auto done = endpoint->next(5s);
  if (!done || !done->ok()) return done ? done->status() : done.status();
  std::cout << "the server's memory says: " << reinterpret_cast<const char*>(inbox->data()) << std::endl;
  return std::cout ? Status() : make_error(std::make_error_code(std::errc::io_error), "cannot write it");
}

int main() {
  const Status said = say_hello();
  if (!said) std::cerr << said.message() << '\n';
  return said ? 0 : 1;
}
