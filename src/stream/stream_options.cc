#include <algorithm>

#include "rdmacomm/stream.h"
#include "stream/stream_link.h"

namespace rdmacomm {

Status StreamOptions::validate() const {
  const auto wrong = [](const char* field, auto value, auto least, auto most) {
    return make_error(Errc::kInvalidArgument, std::string("stream: ") + field + " is " + std::to_string(value) +
                                                  "; it must be " + std::to_string(least) + ".." +
                                                  std::to_string(most));
  };
  if (block_bytes < kLeastBlock || block_bytes > kMostBlock) {
    return wrong("block_bytes", block_bytes, kLeastBlock, kMostBlock);
  }
  const auto outside = [](int blocks) { return blocks < 0 || blocks > kMostBlocks; };
  if (outside(write_blocks)) return wrong("write_blocks", write_blocks, 0, kMostBlocks);
  if (outside(read_blocks)) return wrong("read_blocks", read_blocks, 0, kMostBlocks);
  if (outside(borrowed_blocks)) {
    return wrong("borrowed_blocks", borrowed_blocks, 0, kMostBlocks);
  }
  return {};
}

int StreamOptions::send_depth() const noexcept {
  return write_blocks + borrowed_blocks + StreamLink::kControlSends;
}

int StreamOptions::recv_depth() const noexcept {
  return read_blocks + StreamLink::control_receives(*this);
}

ChannelConfig StreamOptions::channel(std::string name) const {
  ChannelConfig config{.name = std::move(name), .own_completion_queue = true};
  config.adapter.send_depth = send_depth();
  config.adapter.recv_depth = recv_depth();
  config.adapter.max_send_slices = 2;
  config.adapter.max_recv_slices = 2;
  return config;
}

}  // namespace rdmacomm
