// messages.h - what the two sides of a copy tell each other.   Wire form: docs/wire_format.md "Copies"
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

/// So deep are directories within each other at most: both sides have each one open that they are in.
inline constexpr std::size_t kMaxDepth = 300;

/// What is wanted, whoever sends. A value.
struct CopyOptions {
  bool recursive = false;              ///< directories, too; links as links
  bool archive = false;                ///< modes and times are kept; links as links
  bool checksum = true;                ///< of what was read and of what was written
  bool resume = false;                 ///< what is there already, whole or in part, is not sent again
  bool delta = false;                  ///< of files that are there, only blocks that differ are sent
  bool dry_run = false;                ///< nothing is written
  bool sync = false;                   ///< on the disk before it counts
  std::uint64_t bytes_per_second = 0;  ///< of what is sent; 0: no bound

  [[nodiscard]] bool links_as_links() const noexcept { return recursive || archive; }
  [[nodiscard]] bool looks_at_old() const noexcept { return resume || delta; }
  bool operator==(const CopyOptions&) const = default;
};

enum class Direction : std::uint8_t { kPush = 1, kPull = 2 };

/// The first frame, from the client. A value.
struct Job {
  static constexpr std::size_t kMaxPath = 4096;
  static constexpr std::size_t kMaxPaths = std::size_t{8} << 20;  ///< bytes of all together, and some for each

  Direction direction = Direction::kPush;
  CopyOptions options = {};
  std::uint32_t sources = 0;  ///< how many there are

  /// How many paths on the server follow: of kPush the one destination, of kPull the sources.
  [[nodiscard]] std::uint32_t paths() const noexcept { return direction == Direction::kPush ? 1 : sources; }

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Job> decode(std::span<const std::byte> bytes);
  bool operator==(const Job&) const = default;
};

/// A path on the server, as a frame of its own carries it.
/// kBadMessage: longer than Job::kMaxPath, or it has a NUL
[[nodiscard]] Result<std::string> take_path(std::span<const std::byte> payload);

/// A point in time of a file system. A value.
struct FileTime {
  std::int64_t seconds = 0;
  std::uint32_t nanoseconds = 0;  ///< below 10^9
  [[nodiscard]] static FileTime modified(const struct stat& is) noexcept;
  /// For futimens(3) and utimensat(2): the time of the last access stays.
  [[nodiscard]] std::array<timespec, 2> for_utimens() const noexcept;
  bool operator==(const FileTime&) const = default;
};

/// Of a file, a directory or a link. A value.
struct Entry {
  std::uint32_t id = 0;    ///< 1, 2, ... in the order in which they are sent
  std::uint32_t mode = 0;  ///< permissions: 0..07777
  FileTime modified = {};
  std::uint64_t size = 0;  ///< of a file; else 0
  bool asks = false;       ///< a file: the source waits to hear what the sink has of it
  std::string name =
      {};  ///< without '/': in the directory that was entered last. Of a first one may be empty: the destination itself
  std::string target = {};  ///< of a link

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, out of range, a name that has '/' or NUL, or is "." or ".."
  [[nodiscard]] static Result<Entry> decode(std::span<const std::byte> bytes);
  bool operator==(const Entry&) const = default;
};

/// What a sink has of a file already: of kNone no hashes follow, else one for each block of it. A value.
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

  /// Hashes that follow: of all blocks, the last one of which may be short.
  [[nodiscard]] std::uint64_t blocks() const noexcept { return (size + block_bytes - 1) / block_bytes; }
  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Have> decode(std::span<const std::byte> bytes);
};
/// Those of the next blocks. A value.
struct Hashes {
  static constexpr std::size_t kBytesOfBlock = 20;  ///< the rolling sum, the hash

  std::vector<BlockSums> blocks = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: the last one is cut off
  [[nodiscard]] static Result<Hashes> decode(std::span<const std::byte> bytes);
  bool operator==(const Hashes&) const = default;
};
/// The block size for a file of so many bytes: small, so that few bytes are sent for a change, and kMaxBlocks at most.
[[nodiscard]] std::uint32_t hash_block_bytes(std::uint64_t size) noexcept;

/// A part of a file: a hole. A value.
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
  std::uint64_t from = 0;  ///< where in what it has; of a partial file the same as offset

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Same> decode(std::span<const std::byte> bytes);
};

/// How a file ends. A value.
struct FileEnd {
  enum class State : std::uint8_t {
    kWhole = 0,      ///< everything was sent
    kGivenUp = 1,    ///< it is to be forgotten
    kUnchanged = 2,  ///< the old one is the same
  };
  std::uint32_t id = 0;
  State state = State::kWhole;
  std::optional<std::uint64_t> checksum = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<FileEnd> decode(std::span<const std::byte> bytes);
};

/// One thing could not be copied; all else goes on. A value.
struct Failure {
  static constexpr std::size_t kMaxText = 8192;
  std::uint32_t id = 0;  ///< the entry's; 0: none was announced
  std::string text = {};

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Failure> decode(std::span<const std::byte> bytes);
};

/// What has been done. A value.
struct Counts {
  std::uint64_t files = 0;
  std::uint64_t directories = 0;
  std::uint64_t links = 0;
  std::uint64_t bytes = 0;       ///< of files: their sizes
  std::uint64_t bytes_sent = 0;  ///< of those, that were sent; the rest are holes, or were there
  std::uint64_t failures = 0;

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage
  [[nodiscard]] static Result<Counts> decode(std::span<const std::byte> bytes);
};

/// Private data of both sides' cards: that they are rdma_copy, and of which version.
[[nodiscard]] std::vector<std::byte> greeting();
/// kBadMessage: it is another program; kVersionMismatch: the context names both versions.
[[nodiscard]] Status check_greeting(std::span<const std::byte> bytes);

/// Text of the other side's, or a name: what is not printable is escaped, so that it stays one line and does nothing to
/// a terminal. UTF-8 stays.
[[nodiscard]] std::string escaped(std::string_view text);

}  // namespace rdmacomm::copying
