// Each error has a code for the program and a sentence for the user; an end in order is no error. The server prints how
// each client ended: it disconnected, gave up with a reason, did something that is not allowed, or was killed.
#include <unistd.h>

#include <array>
#include <memory>
#include <string>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

class Witness : public SessionHooks {
  Status init_session(const RDMADevice& device) override {
    inbox_ = RDMABuffer::allocate(device, {.name = "inbox", .remote_access = RemoteAccess::kRead});
    return inbox_.status();
  }
  Status lazy_config_hca(HcaConfig& hca, const PeerInfo&) override {
    hca.thread_mode = ThreadMode::kThreadPerEndPoint;
    hca.polling_mode = PollingMode::kAdaptive;
    hca.publish(*inbox_);
    return {};
  }
  void on_disconnected(const EndPoint&, const Status& why) override {
    const char* how = why                                ? "in order"
                      : why.code() == Errc::kPeerLost    ? "lost"
                      : why.code() == Errc::kPeerRefused ? "given up"
                                                         : "broken";
    std::cout << std::string(how) + ": " + why.message() + "\n" << std::flush;
  }
  bool on_connect_failed(const std::string& peer, const Error& why) override {
    std::cout << "not connected: " + peer + ": " + why.message() + "\n" << std::flush;
    return true;
  }

  Result<RDMABuffer> inbox_ = RDMABuffer();
};

Status serve() {  // until it is interrupted
  const two_ends::Interrupt interrupt;
  ServerSession server({.address = {.port = 0}}, std::make_shared<Witness>());
  if (Status listening = two_ends::listen(server); !listening) return listening;
  interrupt.wait();
  return {};
}

/// A client that ends as `end` says.
Status end_by(const HostPort& address, const std::function<Status(const EndPoint&)>& end) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  return server ? end(*server) : server.status();
}

Status do_what_it_may_not(const EndPoint& server) {
  const auto inbox = server.remote_region("inbox");
  const auto letter = RDMABuffer::allocate(server.device(), {});
  if (!inbox || !letter) return inbox ? letter.status() : inbox.status();
  const auto written = server.channel().write(letter->at(0), *inbox).wait(10s);  // the server only lets it read there
  if (written.code() != Errc::kRemoteAccess)
    return make_error(Errc::kWrongState, "the server did not refuse the WRITE");
  std::cout << "refused: " << written.error().message() << std::endl;
  return {};
}

Status end_in_four_ways(const HostPort& address) {
  if (Status left = end_by(address, [](const EndPoint& server) { return server.close(); }); !left) return left;
  const auto give_up = [](const EndPoint& server) {
    server.abort(make_error(Errc::kWrongState, "the disk is full"));
    return Status();
  };
  if (Status gave_up = end_by(address, give_up); !gave_up) return gave_up;
  if (Status refused = end_by(address, do_what_it_may_not); !refused) return refused;
  return end_by(address, [](const EndPoint&) -> Status { _exit(0); });  // as if it was killed
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, end_in_four_ways);
}
