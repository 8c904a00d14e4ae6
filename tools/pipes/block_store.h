// block_store.h - registered blocks for reuse: filled, sent to several receivers, and free again.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <memory>
#include <mutex>
#include <vector>

#include "rdmacomm/buffer.h"
#include "rdmacomm/result.h"

namespace rdmacomm::pipes {

/// Blocks of registered memory. A pointer to a block keeps the store alive.
/// Threads: all functions from any; the last pointer to a block may also be released on any thread.
class BlockStore : public std::enable_shared_from_this<BlockStore> {
 public:
  /// Returns  as RDMABuffer::allocate
  [[nodiscard]] static Result<std::shared_ptr<BlockStore>> create(RDMADevice device, std::size_t block_bytes,
                                                                  std::size_t blocks);

  /// Waits for a free block. A block is free again when the last copy of its pointer is destroyed. nullptr: stop() was
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
