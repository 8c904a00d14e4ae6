// stream_options.h - what a stream is made with, and the channel it wants.
// Layer: stream. Uses: base, endpoint.
#pragma once

#include <cstddef>
#include <string>

#include "rdmacomm/base/result.h"
#include "rdmacomm/endpoint/hca_config.h"

namespace rdmacomm {

/// What one end of a stream is made with. A value. The two ends may differ: a block that is sent is as large as both have.
/// Defaults: docs/streams.md, "Block size and depth".
struct StreamOptions {
  static constexpr std::size_t kLeastBlock = 1024;
  static constexpr std::size_t kMostBlock = std::size_t{1} << 30;
  static constexpr int kMostBlocks = 4096;

  std::size_t block_bytes = std::size_t{256} << 10;  ///< kLeastBlock..kMostBlock
  int write_blocks = 8;  ///< to fill while others are on their way: 0..kMostBlocks; 0: this end lends none
  int read_blocks = 8;   ///< for what comes: 0..kMostBlocks; 0: the peer can send nothing
  /// Of write_from(), so many at a time: 0..kMostBlocks. Blocks that another stream has lent go back to it when they are
  /// sent, so less than that one's read_blocks; else it may come to a stop.
  int borrowed_blocks = 4;
  bool huge_pages = false;  ///< as BufferOptions::huge_pages

  /// Whether this end sends data. One with neither write_blocks nor borrowed_blocks does not, and has fewer receives.
  [[nodiscard]] bool writes() const noexcept { return write_blocks > 0 || borrowed_blocks > 0; }

  /// kInvalidArgument: the context names the field, the value and the bound.
  [[nodiscard]] Status validate() const;
  /// The channel that a stream with these options wants, for HcaConfig::channels or EndPoint::open_channel(): a completion
  /// queue of its own, and depths.
  [[nodiscard]] ChannelConfig channel(std::string name) const;

  /// Requests outstanding at a time, at most.
  [[nodiscard]] int send_depth() const noexcept;
  [[nodiscard]] int recv_depth() const noexcept;
};

}  // namespace rdmacomm
