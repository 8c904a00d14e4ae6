// A server publishes memory; a client writes into it and notifies the server.
// 01_hello: the server, which prints its port. 01_hello HOST:PORT: the client.
#include <cstring>
#include <iostream>

#include "rdmacomm/rdmacomm.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

Status serve() {
  const auto device = RDMADevice::open();
  const BufferOptions options{.name = "inbox", .remote_access = RemoteAccess::kWrite};
  const auto inbox = device ? RDMABuffer::allocate(*device, options) : device.error();
  if (!inbox) return inbox.error();
  const SessionFunctions hooks{
      .lazy_config_hca = [&](HcaConfig& hca, const PeerInfo&) { return hca.publish(*inbox), Status(); },
      .post_connecting = [](const EndPoint& client) -> Status { return client.channel().post_recv({}); }};
  ServerSession server({.shared_device = *device, .address = {.port = 0}}, hooks);
  if (Status started = server.start(); !started) return started;
  std::cout << "listening on port " << server.port() << std::endl;
  const auto client = server.accept(60s);
  const auto told = client ? client->next(60s) : client.error();
  if (!told || !told->ok()) return told ? told->status() : told.status();
  std::cout << "notified of " << told->immediate << ": ";
  std::cout.write(reinterpret_cast<const char*>(inbox->data()), told->bytes) << std::endl;
  return std::cout ? Status() : make_error(std::make_error_code(std::errc::io_error), "cannot write it");
}

Status write_to(const char* address) {
  ClientSession session;
  const auto parsed = HostPort::parse(address);
  const auto server = parsed ? session.connect(*parsed) : parsed.error();  // TCP, then queue pairs: INIT -> RTR -> RTS
  const auto inbox = server ? server->remote_region("inbox") : server.error();
  const auto letter = inbox ? RDMABuffer::allocate(session.device(), {}) : inbox.error();
  if (!letter) return letter.error();
  std::memcpy(letter->data(), "hello", 5);
  return server->channel().write(letter->at(0).first(5), *inbox, {.immediate = 42}).wait(5s).status();
}

int main(int count, char** words) {
  const Status done = count == 1 ? serve() : write_to(words[1]);
  if (!done) std::cerr << done.message() << '\n';
  return done ? 0 : 1;
}
