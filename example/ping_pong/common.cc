#include "ping_pong/common.h"

#include <array>
#include <cstring>

#include "rdmacomm/device.h"
#include "support/client_domain.h"
#include "support/pattern.h"

namespace rdmacomm::ping_pong {

Result<std::unique_ptr<Memory>> Memory::create(const RDMADevice& device, const Terms& terms,
                                               const ProtectionDomain& domain) {
  BufferOptions options;
  options.name = kBufferName;
  options.block_bytes = block_bytes(terms);
  options.block_count = kBlocks;
  options.remote_access = RemoteAccess::kRead | RemoteAccess::kWrite;
  if (device.limits().atomics) options.remote_access = options.remote_access | RemoteAccess::kAtomic;
  auto buffer = programs::allocate_for(device, domain, options);
  if (!buffer) return buffer.error();
  return std::unique_ptr<Memory>(new Memory(std::move(*buffer), static_cast<std::uint32_t>(terms.size)));
}

void Memory::fill_for_peer() {
  fill_for(out().bytes(), Step::kRead);
  std::memcpy(counter().data(), &kCounterStart, sizeof(kCounterStart));
}

Status wait_for(const EndPoint& endpoint, std::size_t wanted, std::vector<Completion>& done) {
  done.clear();
  const Deadline deadline = Deadline::after(kPatience);
  while (done.size() < wanted) {
    std::array<Completion, 4> batch;
    const auto waited = programs::wait_delivered(
        endpoint, std::span(batch).first(std::min(batch.size(), wanted - done.size())), deadline);
    if (!waited) return waited.error();
    for (const Completion& completion : *waited) {
      if (!completion.ok()) return completion.explain();
      done.push_back(completion);
    }
  }
  return {};
}

void fill_for(std::span<std::byte> bytes, Step step) {
  programs::fill_pattern(bytes, static_cast<std::uint64_t>(step));
}

Status check_pattern(std::span<const std::byte> bytes, Step step) {
  const auto seed = static_cast<std::uint64_t>(step);
  const std::size_t at = programs::first_difference(bytes, seed);
  if (at == bytes.size()) return {};
  return make_error(std::make_error_code(std::errc::io_error),
                    "the received data is not the data that was sent: " + programs::difference_text(bytes, at, seed));
}

}  // namespace rdmacomm::ping_pong
