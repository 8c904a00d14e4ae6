// Atomics change 8 bytes of memory on the server in one step: many clients draw numbers, and each number is drawn once.
// The server's program does nothing for this: its device does the work.
#include <cstring>

#include "two_ends.h"
using namespace rdmacomm;
using namespace std::chrono_literals;

constexpr std::uint64_t kFree = 0;

Status serve() {  // until it is interrupted
  const two_ends::Interrupt interrupt;
  Result<RDMABuffer> words = RDMABuffer();  // the next number, and a mark of the first client
  const SessionFunctions hooks{
      .init_session =
          [&](const RDMADevice& device) {
            words = RDMABuffer::allocate(
                device, {.name = "words", .block_bytes = 8, .block_count = 2, .remote_access = RemoteAccess::kAtomic});
            return words.status();
          },
      .lazy_config_hca = [&](HcaConfig& hca, const PeerInfo&) { return hca.publish(*words), Status(); }};
  ServerSession server({.address = {.port = 0}}, hooks);
  if (Status listening = two_ends::listen(server); !listening) return listening;
  interrupt.wait();
  return {};
}

std::uint64_t number_in(const RDMABuffer& buffer) {
  std::uint64_t number = 0;
  std::memcpy(&number, buffer.data(), sizeof(number));
  return number;
}

Status draw_numbers(const HostPort& address) {
  ClientSession session({.address = address});
  const auto server = session.connect();
  const auto words = server ? server->remote_region("words") : server.error();
  const auto before = words ? RDMABuffer::allocate(session.device(), {.block_bytes = 8}) : words.error();
  if (!before) return before.error();
  RDMAChannel& channel = server->channel();
  for (int i = 0; i < 3; ++i) {
    const auto drawn = channel.fetch_add(before->at(0), *words, {.addend = 1}).wait(10s);
    if (!drawn) return drawn.error();
    std::cout << "number " << number_in(*before) << std::endl;
  }
  const CompareSwap if_free{.expected = kFree, .desired = number_in(*before) + 1};
  const auto asked = channel.compare_swap(before->at(0), words->slice_unchecked(8), if_free).wait(10s);
  if (!asked) return asked.error();
  std::cout << (number_in(*before) == kFree ? "the first client" : "not the first client") << std::endl;
  return {};
}

int main(int count, char** words) {
  return two_ends::run(count, words, serve, draw_numbers);
}
