// messages.h - the messages between the two peers of a copy.   Wire form: docs/wire_format.md "Copies"
#pragma once

#include <sys/stat.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <ctime>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "rdma_copy/block_hashes.h"
#include "rdmacomm/result.h"

namespace rdmacomm::copying {

/// The greatest depth of nested directories: both peers keep each directory open that they are in.
inline constexpr std::size_t kMaxDepth = 300;

/// The options of a copy, in both directions. A value.
struct CopyOptions {
  bool recursive = false;              ///< directories, too; links are copied as links
  bool archive = false;                ///< modes and times are kept; links are copied as links
  bool checksum = true;                ///< compare a checksum of the bytes read with one of the bytes written
  bool resume = false;                 ///< content that exists already, in whole or in part, is not sent again
  bool delta = false;                  ///< for existing files, only different blocks are sent
  bool dry_run = false;                ///< nothing is written
  bool sync = false;                   ///< a file counts only once it is on the disk
  std::uint64_t bytes_per_second = 0;  ///< limit of the bytes sent; 0: none

  [[nodiscard]] bool links_as_links() const noexcept { return recursive || archive; }
  [[nodiscard]] bool looks_at_old() const noexcept { return resume || delta; }
  bool operator==(const CopyOptions&) const = default;
};

enum class Direction : std::uint8_t { kPush = 1, kPull = 2 };

/// The first frame, from the client. A value.
struct Job {
  static constexpr std::size_t kMaxPath = 4096;
  static constexpr std::size_t kMaxPaths = std::size_t{8} << 20;  ///< bytes of all paths together, plus some for each

  Direction direction = Direction::kPush;
  CopyOptions options = {};
  std::uint32_t sources = 0;  ///< number of sources

  /// The number of paths on the server that follow: one destination for kPush, the sources for kPull.
  [[nodiscard]] std::uint32_t paths() const noexcept { return direction == Direction::kPush ? 1 : sources; }

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Job> decode(std::span<const std::byte> bytes);
  bool operator==(const Job&) const = default;
};

/// Takes a path on the server from the payload of a frame.
/// kBadMessage: longer than Job::kMaxPath, or it has a NUL
[[nodiscard]] Result<std::string> take_path(std::span<const std::byte> payload);

/// A modification time in a file system. A value.
struct FileTime {
  std::int64_t seconds = 0;
  std::uint32_t nanoseconds = 0;  ///< below 10^9
  [[nodiscard]] static FileTime modified(const struct stat& is) noexcept;
  /// For futimens(3) and utimensat(2): the time of the last access is not changed.
  [[nodiscard]] std::array<timespec, 2> for_utimens() const noexcept;
  bool operator==(const FileTime&) const = default;
};

/// Announces a file, a directory or a link. A value.
struct Entry {
  std::uint32_t id = 0;    ///< 1, 2, ... in the order of sending
  std::uint32_t mode = 0;  ///< permissions: 0..07777
  FileTime modified = {};
  std::uint64_t size = 0;   ///< of a file; else 0
  bool asks = false;        ///< a file: the source waits for the sink's answer
  std::string name = {};    ///< no '/'; in the last entered directory. Empty, only at the top: the destination itself
  std::string target = {};  ///< of a link

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, out of range, a name that has '/' or NUL, or is "." or ".."
  [[nodiscard]] static Result<Entry> decode(std::span<const std::byte> bytes);
  bool operator==(const Entry&) const = default;
};

/// The sink's answer about a file that it may have. With kNone no hashes follow, else one for each block. A value.
struct Have {
  enum class Base : std::uint8_t { kNone = 0, kPartial = 1, kOld = 2 };
  static constexpr std::uint32_t kMinBlock = 4096;
  static constexpr std::uint32_t kMaxBlock = std::uint32_t{1} << 26;
  static constexpr std::uint64_t kMaxBlocks = std::uint64_t{1} << 20;

  static constexpr std::uint64_t kMaxSize = kMaxBlock * kMaxBlocks;

  std::uint32_t id = 0;
  Base base = Base::kNone;
  std::uint64_t size = 0;
  std::uint32_t block_bytes = kMinBlock;  ///< hash_block_bytes(size)

  /// The number of hashes that follow: one for each block; the last block may be short.
  [[nodiscard]] std::uint64_t blocks() const noexcept { return (size + block_bytes - 1) / block_bytes; }
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Have> decode(std::span<const std::byte> bytes);
};
/// The hashes of the next blocks. A value.
struct Hashes {
  static constexpr std::size_t kBytesOfBlock = 20;  ///< the rolling sum and the hash

  std::vector<BlockSums> blocks = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: the last one is truncated
  [[nodiscard]] static Result<Hashes> decode(std::span<const std::byte> bytes);
  bool operator==(const Hashes&) const = default;
};
/// The block size for a file of that size: small, so that a change costs few bytes, but with at most kMaxBlocks blocks.
[[nodiscard]] std::uint32_t hash_block_bytes(std::uint64_t size) noexcept;

/// A hole in a file. A value.
struct Extent {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Extent> decode(std::span<const std::byte> bytes);
};

/// A part of a file that the sink has. A value.
struct Same {
  std::uint64_t offset = 0;
  std::uint64_t length = 0;
  std::uint64_t from = 0;  ///< its offset in the sink's data; in a partial file the same as `offset`

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Same> decode(std::span<const std::byte> bytes);
};

/// The end of a file. A value.
struct FileEnd {
  enum class State : std::uint8_t {
    kWhole = 0,      ///< everything was sent
    kGivenUp = 1,    ///< the sink must forget it
    kUnchanged = 2,  ///< the sink's old file is equal
  };
  std::uint32_t id = 0;
  State state = State::kWhole;
  std::optional<std::uint64_t> checksum = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<FileEnd> decode(std::span<const std::byte> bytes);
};

/// An entry could not be copied; the copy continues. A value.
struct Failure {
  static constexpr std::size_t kMaxText = 8192;
  std::uint32_t id = 0;  ///< of the entry; 0: none was announced
  std::string text = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Failure> decode(std::span<const std::byte> bytes);
};

/// The result of a copy. A value.
struct Counts {
  std::uint64_t files = 0;
  std::uint64_t directories = 0;
  std::uint64_t links = 0;
  std::uint64_t bytes = 0;       ///< the sum of the sizes of all files
  std::uint64_t bytes_sent = 0;  ///< bytes that were sent of them; the rest are holes, or existed already
  std::uint64_t failures = 0;

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Counts> decode(std::span<const std::byte> bytes);
};

/// The private data of both peers in the handshake: identifies rdma_copy and its version.
[[nodiscard]] std::vector<std::byte> identification();
/// kBadMessage: the peer is another program; kVersionMismatch: the context names both versions.
[[nodiscard]] Status check_identification(std::span<const std::byte> bytes);

/// Makes text from the peer, or a name, safe to print: characters that are not printable are escaped, so that the text
/// stays one line and cannot control a terminal. UTF-8 is kept.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace rdmacomm::copying
