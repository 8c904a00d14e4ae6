#include <cstring>
#include <iostream>

#include "rdmacomm/rdmacomm.h"
using namespace rdmacomm;

Status say_hello() {  // both ends in one process, so that it runs by itself
  SessionOptions options;
  options.address = {.host = "127.0.0.1", .port = 0};
  ServerSession server(options);
  if (Status started = server.start(); !started.ok()) return started;
  options.address.port = server.port();
  ClientSession client(options);
  const auto endpoint = client.connect();  // TCP, then queue pairs: INIT -> RTR -> RTS
  if (!endpoint) return endpoint.error();
  const auto inbox = RDMABuffer::allocate(*server.device(), {.remote_access = RemoteAccess::kWrite});
  const auto letter = RDMABuffer::allocate(*client.device(), {});
  if (!inbox || !letter) return (inbox ? letter : inbox).error();
  std::memcpy((*letter)->data(), "hello", 6);
  if (Outcome posted = (*endpoint)->data()->post_write((*letter)->at(0), (*inbox)->remote_region()); !posted)
    return posted;
  const auto done = (*endpoint)->next(Deadline::after(std::chrono::seconds(5)));
  if (!done || !done->ok()) return done ? done->status() : done.status();
  std::cout << "the server's memory says: " << reinterpret_cast<const char*>((*inbox)->data()) << std::endl;
  return std::cout ? Status() : make_error(std::make_error_code(std::errc::io_error), "cannot write it");
}

int main() {
  const Status said = say_hello();
  if (!said.ok()) std::cerr << said.message() << '\n';
  return said.ok() ? 0 : 1;
}
