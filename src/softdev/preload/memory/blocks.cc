#include "softdev/preload/memory/blocks.h"

#include <bit>
#include <cerrno>
#include <new>

#include "softdev/preload/memory/raw_memory.h"

namespace rdmacomm::softdev::own {

/// A segment with short blocks. Blocks are numbered by run and page, from 1 on.
struct Blocks::Run : Segment {
  std::size_t number = 0;
  std::size_t used = 0;                      ///< pages that were given to blocks so far
  std::uint8_t kind[Segment::kPages] = {};   ///< of the block that begins at this page: 1 + its class, and the flags
  std::uint32_t next[Segment::kPages] = {};  ///< the number of the next free block
  static constexpr std::uint8_t kFree = 0x80;
  static constexpr std::uint8_t kKept = 0x40;  ///< free, and it keeps its memory
  static constexpr std::uint8_t kClassMask = 0x3f;
};

namespace {

constexpr std::size_t kEachPages = 8;  // up to this size, each number of pages is a class of its own

}  // namespace

/// 1 to 8 pages: one class each. Then four classes for each power of two.
std::size_t Blocks::class_of(std::size_t pages) noexcept {
  if (pages <= kEachPages) return pages - 1;
  const auto log = static_cast<std::size_t>(std::bit_width(pages - 1)) - 1;  // 2^log < pages <= 2^(log + 1)
  const std::size_t step = std::size_t{1} << (log - 2);
  const std::size_t within = (pages - (std::size_t{1} << log) + step - 1) / step;  // 1 to 4
  return kEachPages + (log - 3) * 4 + within - 1;
}

std::size_t Blocks::pages_of(std::size_t size_class) noexcept {
  if (size_class < kEachPages) return size_class + 1;
  const std::size_t log = (size_class - kEachPages) / 4 + 3;
  const std::size_t within = (size_class - kEachPages) % 4 + 1;
  return (std::size_t{1} << log) + (within << (log - 2));
}

void* Blocks::record(std::size_t bytes) noexcept {
  constexpr std::size_t kChunk = std::size_t{64} << 10;
  bytes = (bytes + 63) / 64 * 64;
  if (records_left_ < bytes) {
    void* const chunk = private_memory(kChunk);
    if (chunk == nullptr) return nullptr;
    records_ = number(chunk);
    records_left_ = kChunk;
  }
  void* const made = pointer(records_);
  records_ += bytes;
  records_left_ -= bytes;
  return made;
}

const Segment* Blocks::find(const void* address) const noexcept {
  const std::uintptr_t place = number(address) >> kSegmentBits;
  const std::uintptr_t top = place >> kLeafBits;
  if (top >= kTop) return nullptr;
  const Leaf* const leaf = leaves_[top].load(std::memory_order_acquire);
  if (leaf == nullptr) return nullptr;
  return leaf->segments[place & ((1U << kLeafBits) - 1)].load(std::memory_order_acquire);
}

/// Makes find() return `segment` for all addresses of its length; nullptr removes it. Returns false: no memory.
bool Blocks::enter(std::uintptr_t start, Segment* segment) noexcept {
  const std::uintptr_t place = start >> kSegmentBits;
  std::atomic<Leaf*>& leaf = leaves_[place >> kLeafBits];
  if (leaf.load(std::memory_order_relaxed) == nullptr) {
    void* const memory = private_memory(sizeof(Leaf));
    if (memory == nullptr) return false;
    leaf.store(new (memory) Leaf, std::memory_order_release);
  }
  leaf.load(std::memory_order_relaxed)
      ->segments[place & ((1U << kLeafBits) - 1)]
      .store(segment, std::memory_order_release);
  return true;
}

/// Maps a new part of the file at a multiple of Segment::kBytes.
bool Blocks::place(Segment& segment, std::size_t length) noexcept {
  constexpr std::size_t kHugePage = std::size_t{2} << 20;
  const int error = errno;
  std::uint64_t offset = 0;
  if (!file_.take(length, kHugePage, offset)) return false;
  // Often the memory before the last segment is free. Otherwise finds an aligned place in a larger reservation.
  void* memory = next_start_ < length ? nullptr : file_.map(pointer(next_start_ - length), length, 0, offset);
  if (memory != nullptr && number(memory) % Segment::kBytes != 0) {
    raw_munmap(memory, length);
    memory = nullptr;
  }
  if (memory == nullptr) {
    const std::size_t reserved = length + Segment::kBytes;
    void* const around = raw_mmap(nullptr, reserved, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (around == MAP_FAILED) return false;
    const std::uintptr_t start = (number(around) + Segment::kBytes - 1) / Segment::kBytes * Segment::kBytes;
    const std::size_t before = start - number(around);
    memory = file_.map(pointer(start), length, MAP_FIXED, offset);
    if (memory == nullptr) {
      raw_munmap(around, reserved);
      return false;
    }
    if (before != 0) raw_munmap(around, before);
    if (before != Segment::kBytes) raw_munmap(pointer(start + length), Segment::kBytes - before);
  }
  segment.start = next_start_ = number(memory);
  segment.length = length;
  segment.offset = offset;
  segment.generation = generation_;
  raw_madvise(memory, length, MADV_HUGEPAGE);
  errno = error;  // of the attempts above
  // Covers the whole length, for find() with any address inside.
  for (std::uintptr_t at = segment.start; at < segment.start + length; at += Segment::kBytes) {
    if (enter(at, &segment)) continue;
    for (std::uintptr_t undo = segment.start; undo < at; undo += Segment::kBytes) (void)enter(undo, nullptr);
    raw_munmap(memory, length);
    return false;
  }
  return true;
}

Blocks::Run* Blocks::new_run() noexcept {
  if (runs_ == kMostRuns) return nullptr;
  void* const memory = record(sizeof(Run));
  if (memory == nullptr) return nullptr;
  auto* const run = new (memory) Run;
  run->is_run = true;
  run->number = runs_;
  if (!place(*run, Segment::kBytes)) return nullptr;
  run_by_number_[runs_++] = run;
  return run;
}

void* Blocks::take_free(std::size_t size_class) noexcept {
  std::uint32_t& first = free_[size_class];
  if (first == 0) return nullptr;
  Run& run = *run_by_number_[(first - 1) / Segment::kPages];
  const std::size_t page = (first - 1) % Segment::kPages;
  if ((run.kind[page] & Run::kKept) != 0) kept_ -= pages_of(size_class) * kPage;
  run.kind[page] = static_cast<std::uint8_t>(1 + size_class);
  first = run.next[page];
  return pointer(run.start + page * kPage);
}

void Blocks::put_free(Run& run, std::size_t page, std::size_t size_class) noexcept {
  run.kind[page] = static_cast<std::uint8_t>((1 + size_class) | Run::kFree);
  run.next[page] = free_[size_class];
  free_[size_class] = static_cast<std::uint32_t>(run.number * Segment::kPages + page + 1);
}

/// Divides the rest of the current run into free blocks.
void Blocks::use_up_run() noexcept {
  while (current_ != nullptr && current_->used < Segment::kPages) {
    const std::size_t left = Segment::kPages - current_->used;
    std::size_t size_class = kClasses - 1;
    while (pages_of(size_class) > left) --size_class;
    put_free(*current_, current_->used, size_class);
    current_->used += pages_of(size_class);
  }
}

void* Blocks::carve(std::size_t size_class) noexcept {
  const std::size_t pages = pages_of(size_class);
  if (current_ == nullptr || Segment::kPages - current_->used < pages) {
    Run* const fresh = new_run();
    if (fresh == nullptr) return nullptr;
    use_up_run();
    current_ = fresh;
  }
  const std::size_t page = current_->used;
  current_->used += pages;
  current_->kind[page] = static_cast<std::uint8_t>(1 + size_class);
  return pointer(current_->start + page * kPage);
}

/// A kept block with at least this length, and at most a quarter more.
void* Blocks::take_kept(std::size_t length) noexcept {
  Segment** best = nullptr;
  for (Segment*& one : kept_long_) {
    if (one == nullptr || one->length < length || one->length > length + length / 4) continue;
    if (best == nullptr || one->length < (*best)->length) best = &one;
  }
  if (best == nullptr) return nullptr;
  Segment& found = **best;
  *best = nullptr;
  found.is_kept = false;
  kept_long_bytes_ -= found.length;
  return pointer(found.start);
}

/// Keeps a freed long block for the next request: to map it again costs far more than its use. Returns false: enough
/// memory is kept.
bool Blocks::keep(Segment& segment) noexcept {
  const bool is_enough = kept_long_bytes_ + segment.length > kMostKeptLongBytes;
  if (segment.generation != generation_ || is_enough) return false;
  for (Segment*& place : kept_long_) {
    if (place != nullptr) continue;
    place = &segment;
    segment.is_kept = true;
    kept_long_bytes_ += segment.length;
    return true;
  }
  return false;
}

/// Gives a long block back to the system.
void Blocks::release(Segment& segment) noexcept {
  for (std::uintptr_t at = segment.start; at < segment.start + segment.length; at += Segment::kBytes) {
    (void)enter(at, nullptr);
  }
  raw_munmap(pointer(segment.start), segment.length);
  if (segment.generation == generation_) file_.punch(segment.offset, segment.length);
  segment.start = reinterpret_cast<std::uintptr_t>(free_records_);
  free_records_ = &segment;
}

void Blocks::drop_kept() noexcept {
  for (Segment*& kept : kept_long_) {
    if (kept == nullptr) continue;
    kept_long_bytes_ -= kept->length;
    kept->is_kept = false;
    release(*kept);
    kept = nullptr;
  }
}

void* Blocks::allocate_long(std::size_t length) noexcept {
  Segment* segment = free_records_;
  if (segment != nullptr) {
    free_records_ = reinterpret_cast<Segment*>(segment->start);
  } else {
    void* const memory = record(sizeof(Segment));
    if (memory == nullptr) return nullptr;
    segment = static_cast<Segment*>(memory);
  }
  new (segment) Segment;
  if (place(*segment, length)) return pointer(segment->start);
  segment->start = reinterpret_cast<std::uintptr_t>(free_records_);
  free_records_ = segment;
  return nullptr;
}

void* Blocks::allocate(std::size_t length, std::size_t alignment, bool& is_zeroed) noexcept {
  is_zeroed = true;
  if (length > (std::size_t{1} << kAddressBits)) return nullptr;
  const std::size_t pages = length == 0 ? 1 : in_pages(length) / kPage;
  if (pages > kMostPages || alignment > kPage) {
    void* const kept = take_kept(pages * kPage);
    is_zeroed = kept == nullptr;
    if (kept != nullptr || !is_affordable(pages * kPage)) return kept;
    return allocate_long(pages * kPage);
  }
  const std::size_t size_class = class_of(pages);
  void* const block = take_free(size_class);
  is_zeroed = block == nullptr;
  return block != nullptr ? block : carve(size_class);
}

std::size_t Blocks::size(const Segment& segment, const void* block) const noexcept {
  if (!segment.is_run) return number(block) == segment.start && !segment.is_kept ? segment.length : 0;
  const auto& run = static_cast<const Run&>(segment);
  const std::uintptr_t inside = number(block) - run.start;
  const std::uint8_t kind = run.kind[inside / kPage];
  if (inside % kPage != 0 || kind == 0 || (kind & Run::kFree) != 0) return 0;
  return pages_of((kind & Run::kClassMask) - 1U) * kPage;
}

bool Blocks::free(const Segment& segment, void* block) noexcept {
  const std::size_t bytes = size(segment, block);
  if (bytes == 0) return false;
  if (!segment.is_run) {
    auto* const gone = const_cast<Segment*>(&segment);
    if (!keep(*gone)) release(*gone);
    return true;
  }
  auto& run = const_cast<Run&>(static_cast<const Run&>(segment));
  const std::size_t page = (number(block) - run.start) / kPage;
  const std::size_t size_class = (run.kind[page] & Run::kClassMask) - 1U;
  if (run.generation != generation_) {
    run.kind[page] = 0;
    raw_madvise(block, bytes, MADV_DONTNEED);
    return true;
  }
  put_free(run, page, size_class);
  if (kept_ + bytes <= kMostKept) {
    kept_ += bytes;
    run.kind[page] |= Run::kKept;
  } else {
    file_.punch(run.offset + page * kPage, bytes);
  }
  return true;
}

void Blocks::begin_generation() noexcept {
  ++generation_;
  kept_ = kept_long_bytes_ = 0;
  current_ = nullptr;
  next_start_ = 0;
  for (std::uint32_t& first : free_) first = 0;
  for (Segment*& kept : kept_long_) kept = nullptr;
}

}  // namespace rdmacomm::softdev::own
