#include "lat_bw_benchmark/workspace.h"

#include <algorithm>
#include <cstring>

#include "lat_bw_benchmark/messages.h"
#include "rdmacomm/device.h"
#include "support/client_domain.h"

namespace rdmacomm::benchmark {
namespace {

constexpr std::uint64_t kPage = 4096;

}  // namespace

std::uint64_t Workspace::bytes_for(const Plan& plan) {
  return 2 * plan.area_bytes() + kPage;
}

Result<std::unique_ptr<Workspace>> Workspace::create(const RDMADevice& device, const Plan& plan,
                                                     const ProtectionDomain& domain) {
  BufferOptions options;
  options.name = kWorkspace;
  options.block_bytes = kPage;
  options.block_count = bytes_for(plan) / kPage;
  options.remote_access = RemoteAccess::kRead | RemoteAccess::kWrite;
  // Requested only if needed: a device without atomics can still measure the rest.
  if (std::ranges::any_of(plan.ops, is_atomic)) options.remote_access = options.remote_access | RemoteAccess::kAtomic;
  auto buffer = programs::allocate_for(device, domain, options);
  if (!buffer) return buffer.error();
  return std::unique_ptr<Workspace>(new Workspace(std::move(*buffer), plan.area_bytes()));
}

void Workspace::touch() noexcept {
  std::memset(buffer_.data(), 0x5a, buffer_.size());
}

Blocks::Blocks(Workspace& mine, const RemoteRegion& theirs, const Plan& plan, const Cell& cell)
    : bytes_(cell.bytes),
      stride_(Plan::stride(cell.bytes)),
      count_(static_cast<std::uint32_t>(plan.blocks(cell.bytes))),
      lkey_(mine.buffer().lkey()),
      rkey_(theirs.rkey),
      out_(reinterpret_cast<std::uint64_t>(mine.buffer().data())),
      in_(out_ + mine.in_offset()),
      counter_(out_ + mine.counter_offset()),
      their_out_(theirs.address),
      their_in_(theirs.address + mine.in_offset()),
      their_counter_(theirs.address + mine.counter_offset()) {}

}  // namespace rdmacomm::benchmark
