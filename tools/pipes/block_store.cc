#include "pipes/block_store.h"

#include "rdmacomm/device.h"

namespace rdmacomm::pipes {

Result<std::shared_ptr<BlockStore>> BlockStore::create(RDMADevice device, std::size_t block_bytes, std::size_t blocks) {
  auto memory = RDMABuffer::allocate(device, {.name = "input", .block_bytes = block_bytes, .block_count = blocks});
  if (!memory) return memory.error();
  std::shared_ptr<BlockStore> store(new BlockStore());
  store->device_ = std::move(device);
  store->memory_ = std::move(*memory);
  for (std::size_t i = blocks; i-- > 0;) store->free_.push_back(store->memory_.at(i));
  return store;
}

std::shared_ptr<const BufferSlice> BlockStore::take() {
  std::unique_lock lock(mutex_);
  freed_.wait(lock, [this] { return stopped_ || !free_.empty(); });
  if (stopped_) return nullptr;
  auto* block = new BufferSlice(free_.back());
  free_.pop_back();
  lock.unlock();
  return {block, [store = shared_from_this()](const BufferSlice* gone) {
            store->give_back(*gone);
            delete gone;
          }};
}

void BlockStore::stop() {
  {
    const std::lock_guard lock(mutex_);
    stopped_ = true;
  }
  freed_.notify_all();
}

void BlockStore::give_back(const BufferSlice& block) {
  {
    const std::lock_guard lock(mutex_);
    free_.push_back(block);
  }
  freed_.notify_one();
}

}  // namespace rdmacomm::pipes
