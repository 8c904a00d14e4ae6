// block_store.h - registered blocks that go round: filled, sent to several, and free again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "rdmacomm/buffer.h"
#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

/// Some blocks of registered memory. Who has one keeps the store alive.
/// Threads: all functions from any; also the last drop of a block.
class BlockStore : public std::enable_shared_from_this<BlockStore> {
 public:
  /// Returns  as RDMABuffer::allocate
  [[nodiscard]] static Result<std::shared_ptr<BlockStore>> create(RDMADevice device, std::size_t block_bytes,
                                                                  std::size_t blocks);

  /// Waits for a block that nobody has. It is free again when the last copy of the pointer is gone. nullptr: stop() was
  /// called.
  [[nodiscard]] std::shared_ptr<const BufferSlice> take();
  /// Ends all waits, now and later.
  void stop();

 private:
  BlockStore() = default;
  void give_back(const BufferSlice& block);

  RDMADevice device_;
  RDMABuffer memory_;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<BufferSlice> free_;
  bool stopped_ = false;
};

}  // namespace rdmacomm::pipes
