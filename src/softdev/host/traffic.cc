#include "softdev/host/traffic.h"

#include "softdev/host/gid_table.h"
#include "softdev/host/traffic_file.h"

namespace rdmacomm::softdev {

TrafficFile* Traffic::file() noexcept {
  TrafficFile* file = file_.load(std::memory_order_acquire);
  if (file != nullptr) return file;
  file = TrafficFile::of_process(device_guid(0));
  file_.store(file, std::memory_order_release);
  return file;
}

void Traffic::add(Count kind, std::uint64_t number) noexcept {
  TrafficFile* const there = file();
  if (there == nullptr) return;
  there->counter(device_, kind).fetch_add(number, std::memory_order_relaxed);
}

void Traffic::add_received(std::uint64_t bytes, std::uint32_t packet_bytes) noexcept {
  add(Count::kReceivedPackets, packets_of(bytes, packet_bytes));
  add(Count::kReceivedBytes, bytes);
}

void Traffic::add_sent(std::uint64_t bytes, std::uint32_t packet_bytes) noexcept {
  add(Count::kSentPackets, packets_of(bytes, packet_bytes));
  add(Count::kSentBytes, bytes);
}

TrafficCell* Traffic::take(std::uint32_t target) noexcept {
  TrafficFile* const there = file();
  return there == nullptr ? nullptr : there->take(device_, target);
}

void Traffic::release(TrafficCell* cell) noexcept {
  TrafficFile* const there = file_.load(std::memory_order_acquire);
  if (there != nullptr && cell != nullptr) there->release(cell);
}

}  // namespace rdmacomm::softdev
