#include <algorithm>

#include "base/check_range.h"
#include "rdmacomm/stream.h"
#include "stream/stream_link.h"

namespace rdmacomm {

Status StreamOptions::validate() const {
  Status checked =
      check_range("stream: block_bytes", static_cast<std::int64_t>(block_bytes), {.low = kMinBlock, .high = kMaxBlock});
  if (checked) checked = check_range("stream: write_blocks", write_blocks, {.low = 0, .high = kMaxBlocks});
  if (checked) checked = check_range("stream: read_blocks", read_blocks, {.low = 0, .high = kMaxBlocks});
  if (checked) checked = check_range("stream: borrowed_blocks", borrowed_blocks, {.low = 0, .high = kMaxBlocks});
  return checked;
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
