// The application's own memory in the file of librdmacomm_own_memory.so, which this program runs with. It must behave
// as private memory does.
#include <dlfcn.h>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <malloc.h>
#include <pthread.h>
#include <sched.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <ucontext.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <random>
#include <thread>
#include <vector>

#include "softdev/memory/application_memory.h"
#include "softdev/shared/address_map.h"

namespace rdmacomm::softdev {
namespace {

constexpr std::size_t kPage = 4096;
constexpr int kReadWrite = PROT_READ | PROT_WRITE;

Reach reach(const void* memory, std::size_t length) {
  std::uint64_t offset = 0;
  return locate_own_memory(memory, length, offset);
}

std::byte* map_plain(std::size_t length) {
  void* const memory = mmap(nullptr, length, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  EXPECT_NE(memory, MAP_FAILED);
  return static_cast<std::byte*>(memory);
}

std::uint64_t offset_of(const void* memory, std::size_t length) {
  std::uint64_t offset = 0;
  EXPECT_EQ(locate_own_memory(memory, length, offset), Reach::kMapped);
  return offset;
}

/// Bytes of the file that are in memory.
std::size_t bytes_in_memory() {
  struct stat file {};
  EXPECT_EQ(fstat(own_memory_fd(), &file), 0);
  return static_cast<std::size_t>(file.st_blocks) * 512;
}

/// Reads the byte at this place of the file, as a peer would.
std::byte seen_by_peer(std::uint64_t offset) {
  std::byte value{};
  EXPECT_EQ(pread(own_memory_fd(), &value, 1, static_cast<off_t>(offset)), 1);
  return value;
}

bool all_are(const std::byte* memory, std::size_t length, int value) {
  return std::all_of(memory, memory + length,
                     [value](std::byte each) { return each == static_cast<std::byte>(value); });
}

/// Runs `body` in a child of fork(). Returns its exit status.
int in_child(const std::function<int()>& body) {
  const pid_t child = fork();
  if (child == 0) _exit(body());
  int status = 0;
  EXPECT_EQ(waitpid(child, &status, 0), child);
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

TEST(OwnMemory, ContainsAllocationsOfAPageAndMore) {
  const std::vector<std::pair<void*, std::size_t>> blocks = {
      {malloc(4096), 4096},
      {malloc(100'000), 100'000},
      {malloc(10 << 20), 10 << 20},
      {calloc(3, 4000), 12'000},
      {memalign(4096, 64), 64},
      {aligned_alloc(64, 8192), 8192},
      {valloc(10), 10},
      {pvalloc(10), 4096},
      {aligned_alloc(2 << 20, 100), 100},
      {realloc(malloc(10), 5000), 5000},
  };
  for (const auto& [block, length] : blocks) {
    ASSERT_NE(block, nullptr);
    EXPECT_EQ(reach(block, length), Reach::kMapped) << length;
    EXPECT_GE(malloc_usable_size(block), length);
    std::memset(block, 1, length);
    free(block);
  }
  void* aligned = nullptr;
  ASSERT_EQ(posix_memalign(&aligned, 1 << 20, 5000), 0);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(aligned) % (1 << 20), 0U);
  EXPECT_EQ(reach(aligned, 5000), Reach::kMapped);
  free(aligned);
}

TEST(OwnMemory, DoesNotContainOtherMemory) {
  void* const small = malloc(100);
  EXPECT_EQ(reach(small, 100), Reach::kPrivate);
  free(small);
  int on_stack = 0;
  EXPECT_EQ(reach(&on_stack, sizeof(on_stack)), Reach::kPrivate);
  void* const shared = mmap(nullptr, kPage, kReadWrite, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  EXPECT_EQ(reach(shared, kPage), Reach::kSharedMapping);
  munmap(shared, kPage);
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  void* const mapped = mmap(nullptr, kPage, PROT_READ, MAP_PRIVATE, file, 0);
  close(file);
  EXPECT_EQ(reach(mapped, kPage), Reach::kFileMapping);
  munmap(mapped, kPage);
}

TEST(OwnMemory, RefusesImpossibleRequestsLikeTheCLibrary) {
  void* memory = nullptr;
  EXPECT_EQ(posix_memalign(&memory, 3, 8192), EINVAL);
  EXPECT_EQ(posix_memalign(&memory, 2, 8192), EINVAL);
  volatile std::size_t huge = SIZE_MAX / 2 + 10;
  EXPECT_EQ(malloc(huge), nullptr);
  EXPECT_EQ(errno, ENOMEM);
  EXPECT_EQ(calloc(huge, 4), nullptr);
  EXPECT_EQ(reallocarray(nullptr, huge, 4), nullptr);
  EXPECT_EQ(pvalloc(SIZE_MAX - 1), nullptr);
  EXPECT_EQ(mmap(nullptr, 0, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
}

TEST(OwnMemory, BlocksOfAllSizesDoNotOverlap) {
  constexpr unsigned kSeed = 7;
  std::mt19937 random(kSeed);
  struct Block {
    std::byte* data;
    std::size_t length;
    int value;
  };
  std::vector<Block> blocks;
  for (int step = 0; step < 4000; ++step) {
    if (blocks.size() < 100 || random() % 2 == 0) {
      const std::size_t length = 1 + random() % (std::size_t{1} << (8 + random() % 15));
      auto* const data = static_cast<std::byte*>(malloc(length));
      ASSERT_NE(data, nullptr);
      std::memset(data, step % 251, length);
      blocks.push_back({data, length, step % 251});
    } else {
      std::swap(blocks[random() % blocks.size()], blocks.back());
      Block& block = blocks.back();
      ASSERT_TRUE(all_are(block.data, block.length, block.value));
      if (random() % 2 == 0) {
        const std::size_t length = 1 + random() % 200'000;
        block.data = static_cast<std::byte*>(realloc(block.data, length));
        ASSERT_TRUE(all_are(block.data, std::min(block.length, length), block.value));
      }
      free(block.data);
      blocks.pop_back();
    }
  }
  for (const Block& block : blocks) free(block.data);
}

TEST(OwnMemory, CallocReturnsZeroesInAUsedBlock) {
  for (const std::size_t length : {std::size_t{4096}, std::size_t{70'000}, std::size_t{3} << 20}) {
    auto* const used = static_cast<std::byte*>(malloc(length));
    std::memset(used, 0xff, length);
    free(used);
    auto* const fresh = static_cast<std::byte*>(calloc(1, length));
    EXPECT_TRUE(all_are(fresh, length, 0));
    free(fresh);
  }
}

TEST(OwnMemory, ThreadsAllocateAndFreeEachOthersBlocks) {
  constexpr int kRounds = 3000;
  std::atomic<std::byte*> passed{nullptr};
  std::atomic<int> wrong{0};
  const auto work = [&](unsigned seed) {
    std::mt19937 random(seed);
    for (int i = 0; i < kRounds; ++i) {
      const std::size_t length = 4096 + random() % 50'000;
      auto* const block = static_cast<std::byte*>(malloc(length));
      std::memset(block, 5, length);
      std::byte* const other = passed.exchange(block);
      if (other != nullptr && !all_are(other, 4096, 5)) ++wrong;
      free(other);
    }
  };
  std::vector<std::thread> threads;
  for (unsigned i = 0; i < 4; ++i) threads.emplace_back(work, i);
  for (std::thread& thread : threads) thread.join();
  free(passed.load());
  EXPECT_EQ(wrong, 0);
}

TEST(OwnMemory, FreedMemoryGoesBackToTheSystem) {
  const std::size_t before = bytes_in_memory();
  constexpr std::size_t kLength = std::size_t{16} << 20;
  void* const block = malloc(kLength);
  std::memset(block, 1, kLength);
  EXPECT_GE(bytes_in_memory(), before + kLength);
  free(block);
  std::vector<void*> blocks;
  for (int i = 0; i < 200; ++i) std::memset(blocks.emplace_back(malloc(1 << 20)), 1, 1 << 20);
  for (void* each : blocks) free(each);
  EXPECT_LE(bytes_in_memory(), before + (std::size_t{64} << 20));
}

/// A vector that grows step by step must not be copied at each step.
TEST(OwnMemory, ABlockThatGrowsRarelyMoves) {
  constexpr std::size_t kStep = 64 * 1024;
  std::byte* block = nullptr;
  int moves = 0;
  for (std::size_t length = kStep; length <= 500 * kStep; length += kStep) {
    auto* const grown = static_cast<std::byte*>(realloc(block, length));
    ASSERT_NE(grown, nullptr);
    moves += grown != block;
    block = grown;
    std::memset(block + length - kStep, static_cast<int>(length / kStep % 251), kStep);
  }
  EXPECT_LE(moves, 20);
  for (std::size_t step = 1; step <= 500; ++step) {
    EXPECT_TRUE(all_are(block + (step - 1) * kStep, kStep, static_cast<int>(step % 251))) << step;
  }
  free(block);
}

TEST(OwnMemory, MoreThanTheMachineHasIsRefused) {
  std::ifstream file("/proc/sys/vm/overcommit_memory");
  int overcommit = 0;
  file >> overcommit;
  if (overcommit == 1) GTEST_SKIP() << "the system promises any amount (vm.overcommit_memory)";
  for (int bits = 44; bits <= 46; ++bits) {
    const std::size_t length = std::size_t{1} << bits;
    EXPECT_EQ(malloc(length), nullptr) << bits;
    EXPECT_EQ(mmap(nullptr, length, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0), MAP_FAILED) << bits;
  }
}

TEST(OwnMemory, ALongBlockServesTheNextRequest) {
  constexpr std::size_t kLength = std::size_t{6} << 20;
  // A child has no blocks of earlier tests.
  EXPECT_EQ(in_child([] {
              void* const first = malloc(kLength);
              std::memset(first, 7, kLength);
              free(first);
              auto* const second = static_cast<std::byte*>(calloc(1, kLength - kPage));
              if (second != first) return 1;
              if (!all_are(second, kLength - kPage, 0)) return 2;
              free(second);
              return in_child([] {
                auto* const own = static_cast<std::byte*>(malloc(kLength));
                std::memset(own, 8, kLength);
                return reach(own, kLength) == Reach::kMapped ? 0 : 3;
              });
            }),
            0);
}

TEST(Mapping, IsCoveredUntilItIsUnmapped) {
  std::byte* const memory = map_plain(4 * kPage);
  const std::uint64_t offset = offset_of(memory, 4 * kPage);
  std::memset(memory, 7, 4 * kPage);
  EXPECT_EQ(seen_by_peer(offset), std::byte{7});
  ASSERT_EQ(munmap(memory + kPage, kPage), 0);
  EXPECT_EQ(seen_by_peer(offset), std::byte{7});
  EXPECT_EQ(seen_by_peer(offset + kPage), std::byte{0});
  EXPECT_NE(reach(memory, 4 * kPage), Reach::kMapped);
  EXPECT_EQ(offset_of(memory + 2 * kPage, 2 * kPage), offset + 2 * kPage);
  ASSERT_EQ(munmap(memory, 4 * kPage), 0);
  EXPECT_EQ(seen_by_peer(offset), std::byte{0});
}

/// A thread may get the address that another one unmaps.
TEST(Mapping, OfAThreadStaysWhileOthersUnmap) {
  constexpr std::size_t kLength = 16 * kPage;
  std::atomic<int> changed{0};
  const auto work = [&changed](int own) {
    for (int i = 0; i < 5000; ++i) {
      std::byte* const memory = map_plain(kLength);
      if (memory == MAP_FAILED) continue;
      for (std::size_t at = 0; at < kLength; at += kPage) memory[at] = static_cast<std::byte>(own);
      for (std::size_t at = 0; at < kLength; at += kPage) changed += memory[at] != static_cast<std::byte>(own);
      munmap(memory, kLength);
    }
  };
  std::vector<std::thread> threads;
  for (int own = 1; own <= 4; ++own) threads.emplace_back(work, own);
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(changed, 0);
}

TEST(Mapping, FixedMappingsReplaceIt) {
  std::byte* const memory = map_plain(3 * kPage);
  const std::uint64_t offset = offset_of(memory, 3 * kPage);
  std::memset(memory, 7, 3 * kPage);
  ASSERT_EQ(mmap(memory + kPage, kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), memory + kPage);
  EXPECT_TRUE(all_are(memory + kPage, kPage, 0));
  EXPECT_EQ(seen_by_peer(offset + kPage), std::byte{0});
  EXPECT_EQ(reach(memory, 3 * kPage), Reach::kSeveral);
  EXPECT_EQ(reach(memory + kPage, kPage), Reach::kPrivate);
  EXPECT_EQ(reach(memory + 2 * kPage, kPage), Reach::kMapped);
  EXPECT_TRUE(all_are(memory + 2 * kPage, kPage, 7));
  munmap(memory, 3 * kPage);
}

/// A system call that no library sees.
long bare_call(long call, std::byte* first, std::size_t second, long third = 0, long fourth = 0) {
#ifdef __x86_64__
  register long r10 asm("r10") = fourth;
  register long r8 asm("r8") = -1;
  register long r9 asm("r9") = 0;
  asm volatile("syscall"
               : "+a"(call)
               : "D"(first), "S"(second), "d"(third), "r"(r10), "r"(r8), "r"(r9)
               : "rcx", "r11", "memory");
  return call;
#else
  return syscall(call, first, second, third, fourth, -1, 0);
#endif
}

TEST(Mapping, ABareSystemCallIsNoticed) {
  std::byte* const memory = map_plain(2 * kPage);
  ASSERT_EQ(reach(memory, 2 * kPage), Reach::kMapped);
  ASSERT_EQ(bare_call(SYS_munmap, memory, 2 * kPage), 0);
  EXPECT_NE(reach(memory, 2 * kPage), Reach::kMapped);
  bare_call(SYS_mmap, memory, 2 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED);
  EXPECT_EQ(reach(memory, 2 * kPage), Reach::kPrivate);
  std::memset(memory, 3, 2 * kPage);
  ASSERT_EQ(madvise(memory, 2 * kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(all_are(memory, 2 * kPage, 0));
  munmap(memory, 2 * kPage);
}

#ifdef __x86_64__
TEST(Mapping, IsCoveredIfTheProgramUsesSyscall) {
  auto* const memory = reinterpret_cast<std::byte*>(
      syscall(SYS_mmap, nullptr, 2 * kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
  ASSERT_EQ(reach(memory, 2 * kPage), Reach::kMapped);
  std::memset(memory, 1, 2 * kPage);
  ASSERT_EQ(syscall(SYS_madvise, memory, kPage, MADV_DONTNEED), 0);
  EXPECT_TRUE(all_are(memory, kPage, 0));
  auto* const grown =
      reinterpret_cast<std::byte*>(syscall(SYS_mremap, memory, 2 * kPage, 3 * kPage, MREMAP_MAYMOVE, nullptr));
  EXPECT_TRUE(all_are(grown + kPage, kPage, 1));
  EXPECT_EQ(reach(grown, 3 * kPage), Reach::kMapped);
  const std::uint64_t offset = offset_of(grown + kPage, kPage);
  ASSERT_EQ(syscall(SYS_munmap, grown, 3 * kPage), 0);
  EXPECT_EQ(seen_by_peer(offset), std::byte{0});
}
#endif

TEST(Syscall, PassesOtherCalls) {
  EXPECT_EQ(syscall(SYS_getpid), getpid());
  EXPECT_EQ(syscall(SYS_close, -1), -1);
  EXPECT_EQ(errno, EBADF);
  int value = 7;  // six arguments: the value differs, so the kernel does not wait
  EXPECT_EQ(syscall(SYS_futex, &value, 9 /* FUTEX_WAIT_BITSET */, 8, nullptr, nullptr, 1), -1);
  EXPECT_EQ(errno, EAGAIN);
  EXPECT_EQ(syscall(SYS_munmap, 1, kPage), -1);
  EXPECT_EQ(errno, EINVAL);
  int ends[2];
  ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
  ASSERT_EQ(write(ends[1], "abc", 3), 3);
  char read_back[3] = {};
  EXPECT_EQ(syscall(SYS_read, ends[0], read_back, 3), 3);
  EXPECT_EQ(read_back[2], 'c');
  close(ends[0]);
  close(ends[1]);
}

TEST(Mapping, KeepsItsRightsAndIsFoundAfterMprotect) {
  std::byte* const memory = map_plain(2 * kPage);
  ASSERT_EQ(mprotect(memory + kPage, kPage, PROT_READ), 0);
  EXPECT_EQ(reach(memory, 2 * kPage), Reach::kMapped);
  EXPECT_EQ(in_child([memory] {
              AddressMap map;
              MappedRange range;
              return map.find(reinterpret_cast<std::uintptr_t>(memory + kPage), range) && range.protection == PROT_READ
                         ? 0
                         : 1;
            }),
            0);
  munmap(memory, 2 * kPage);
}

TEST(Remapping, GrowsWithItsContentsAndNotIntoItsNeighbours) {
  std::byte* const memory = map_plain(2 * kPage);
  std::byte* const below = map_plain(2 * kPage);
  std::memset(memory, 1, 2 * kPage);
  std::memset(below, 2, 2 * kPage);
  EXPECT_EQ(mremap(below, 2 * kPage, 8 * kPage, 0), MAP_FAILED);
  EXPECT_EQ(errno, ENOMEM);
  auto* const grown = static_cast<std::byte*>(mremap(below, 2 * kPage, 8 * kPage, MREMAP_MAYMOVE));
  ASSERT_NE(grown, MAP_FAILED);
  EXPECT_TRUE(all_are(grown, 2 * kPage, 2));
  EXPECT_TRUE(all_are(grown + 2 * kPage, 6 * kPage, 0));
  std::memset(grown, 4, 8 * kPage);
  EXPECT_TRUE(all_are(memory, 2 * kPage, 1));
  EXPECT_EQ(reach(grown, 8 * kPage), Reach::kMapped);
  const std::uint64_t tail = offset_of(grown + 4 * kPage, kPage);
  ASSERT_EQ(mremap(grown, 8 * kPage, kPage, 0), grown);
  EXPECT_EQ(seen_by_peer(tail), std::byte{0});
  std::byte* const place = map_plain(2 * kPage);
  ASSERT_EQ(mremap(memory, 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, place), place);
  EXPECT_TRUE(all_are(place, 2 * kPage, 1));
  EXPECT_EQ(reach(place, 2 * kPage), Reach::kMapped);
  munmap(place, 2 * kPage);
  munmap(grown, kPage);
}

TEST(Remapping, RefusesWhatPrivateMemoryRefuses) {
  std::byte* const memory = map_plain(2 * kPage);
  EXPECT_EQ(mremap(memory, 0, 2 * kPage, MREMAP_MAYMOVE), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mremap(memory + 1, kPage, 2 * kPage, MREMAP_MAYMOVE), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  EXPECT_EQ(mremap(memory, 2 * kPage, 2 * kPage, MREMAP_MAYMOVE | MREMAP_FIXED, memory + kPage), MAP_FAILED);
  EXPECT_EQ(errno, EINVAL);
  munmap(memory, 2 * kPage);
}

TEST(Advice, DiscardedMemoryReadsAsZeroes) {
  std::byte* const memory = map_plain(4 * kPage);
  auto* const block = static_cast<std::byte*>(aligned_alloc(kPage, 4 * kPage));
  for (std::byte* const each : {memory, block}) {
    const std::uint64_t offset = offset_of(each, 4 * kPage);
    std::memset(each, 9, 4 * kPage);
    ASSERT_EQ(madvise(each + kPage, 2 * kPage, MADV_DONTNEED), 0);
    EXPECT_TRUE(all_are(each + kPage, 2 * kPage, 0));
    EXPECT_TRUE(all_are(each, kPage, 9));
    EXPECT_TRUE(all_are(each + 3 * kPage, kPage, 9));
    std::memset(each + kPage, 8, kPage);
    EXPECT_EQ(seen_by_peer(offset + kPage), std::byte{8});
    EXPECT_EQ(madvise(each, 4 * kPage, MADV_FREE), 0);
    for (const int advice : {MADV_WILLNEED, MADV_SEQUENTIAL, MADV_DONTDUMP}) {
      EXPECT_EQ(madvise(each, 4 * kPage, advice), 0) << advice;
    }
    EXPECT_EQ(mlock(each, kPage), 0);
    EXPECT_EQ(munlock(each, kPage), 0);
    EXPECT_EQ(msync(each, kPage, MS_SYNC), 0);
  }
  free(block);
  ASSERT_EQ(mmap(memory + kPage, kPage, kReadWrite, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0), memory + kPage);
  EXPECT_EQ(madvise(memory, 4 * kPage, MADV_FREE), 0);  // private memory in between
  munmap(memory, 4 * kPage);
}

TEST(Advice, WipesMemoryOfAChild) {
  std::byte* const memory = map_plain(kPage);
  ASSERT_EQ(madvise(memory, kPage, MADV_WIPEONFORK), 0);
  std::memset(memory, 6, kPage);
  EXPECT_EQ(in_child([memory] { return all_are(memory, kPage, 0) ? 0 : 1; }), 0);
  EXPECT_TRUE(all_are(memory, kPage, 6));
  munmap(memory, kPage);
}

TEST(Advice, MemoryThatAChildMustNotHaveIsNotThere) {
  std::byte* const memory = map_plain(kPage);
  ASSERT_EQ(madvise(memory, kPage, MADV_DONTFORK), 0);
  std::memset(memory, 6, kPage);
  EXPECT_EQ(in_child([memory] {
              unsigned char present = 0;
              return mincore(memory, kPage, &present) != 0 && errno == ENOMEM ? 0 : 1;
            }),
            0);
  munmap(memory, kPage);
}

/// Memory that a child of any kind must see, and must not change.
struct Inherited {
  std::byte* mapped = map_plain(64 * kPage);
  std::byte* block = static_cast<std::byte*>(malloc(100'000));
  std::uint64_t parents_file = 0;

  Inherited() {
    std::memset(mapped, 1, 2 * kPage);
    std::memset(mapped + 40 * kPage, 3, kPage);
    std::memset(block, 2, 100'000);
    parents_file = inode();
  }
  ~Inherited() {
    munmap(mapped, 64 * kPage);
    free(block);
  }
  static std::uint64_t inode() {
    FileIdentity file;
    return FileIdentity::of(own_memory_fd(), file) ? file.inode : 0;
  }
  [[nodiscard]] bool is_unchanged() const {
    return all_are(mapped, 2 * kPage, 1) && all_are(mapped + 2 * kPage, 38 * kPage, 0) &&
           all_are(mapped + 40 * kPage, kPage, 3) && all_are(block, 100'000, 2);
  }
  /// Returns  0: the child has its own copies, and can allocate memory.
  [[nodiscard]] int check_in_child() {
    if (!is_unchanged()) return 1;
    std::memset(mapped, 90, 64 * kPage);
    std::memset(block, 91, 100'000);
    if (reach(mapped, kPage) == Reach::kMapped) return 2;
    free(block);
    block = static_cast<std::byte*>(malloc(100'000));
    if (reach(block, 100'000) != Reach::kMapped || inode() == parents_file) return 3;
    if (inode() == 0) return 4;
    return 0;
  }
};

TEST(Fork, AChildGetsItsOwnCopies) {
  Inherited inherited;
  EXPECT_EQ(in_child([&] {
              if (const int wrong = inherited.check_in_child(); wrong != 0) return wrong;
              Inherited again;
              return in_child([&] { return again.check_in_child(); });
            }),
            0);
  EXPECT_TRUE(inherited.is_unchanged());
}

TEST(Fork, AChildDoesNotSeeWhatItsParentWritesLater) {
  for (int round = 0; round < 50; ++round) {
    Inherited inherited;
    const pid_t child = fork();
    if (child == 0) _exit(inherited.is_unchanged() ? 0 : 1);
    std::memset(inherited.block, 50, 100'000);
    std::memset(inherited.mapped, 51, 64 * kPage);
    int status = 0;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    ASSERT_EQ(status, 0);
  }
}

TEST(Fork, OtherWaysToMakeAProcess) {
  Inherited inherited;
  pid_t child = _Fork();
  if (child == 0) _exit(inherited.check_in_child());
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  void* const stack = malloc(256 * 1024);  // in the file, too
  const auto body = [](void* argument) { return static_cast<Inherited*>(argument)->check_in_child(); };
  child = clone(body, static_cast<std::byte*>(stack) + 256 * 1024, SIGCHLD, &inherited);
  ASSERT_GT(child, 0);
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
  free(stack);
  EXPECT_TRUE(inherited.is_unchanged());
  EXPECT_EQ(system("exit 3"), 3 << 8);  // NOLINT: posix_spawn, which shares the memory until exec
  EXPECT_TRUE(inherited.is_unchanged());
}

/// The arguments and the result of a coroutine, because makecontext() passes no pointers.
struct Coroutine {
  Inherited* inherited = nullptr;
  ucontext_t caller{};
  ucontext_t context{};
  int status = -1;
};
Coroutine* coroutine = nullptr;

TEST(Fork, WorksInACoroutineWhoseStackIsInTheFile) {
  Inherited inherited;
  constexpr std::size_t kStack = 256 * 1024;
  void* const stack = malloc(kStack);
  ASSERT_EQ(reach(stack, kStack), Reach::kMapped);
  Coroutine own;
  own.inherited = &inherited;
  coroutine = &own;
  getcontext(&own.context);
  own.context.uc_stack.ss_sp = stack;
  own.context.uc_stack.ss_size = kStack;
  own.context.uc_link = &own.caller;
  const auto body = [] {
    volatile int on_stack = 5;
    coroutine->status = in_child([&] {
      if (on_stack != 5) return 10;
      on_stack = 6;
      return coroutine->inherited->check_in_child();
    });
    if (on_stack != 5) coroutine->status = 11;
  };
  makecontext(&own.context, body, 0);
  swapcontext(&own.caller, &own.context);
  EXPECT_EQ(own.status, 0);
  EXPECT_TRUE(inherited.is_unchanged());
  free(stack);
}

TEST(Fork, WorksInAThreadWhoseStackWasInTheFile) {
  Inherited inherited;
  constexpr std::size_t kStack = 256 * 1024;
  std::byte* const stack = map_plain(kStack);
  ASSERT_EQ(reach(stack, kStack), Reach::kMapped);
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  ASSERT_EQ(pthread_attr_setstack(&attributes, stack, kStack), 0);
  pthread_t thread{};
  const auto body = [](void* argument) -> void* {
    auto* const given = static_cast<Inherited*>(argument);
    volatile int on_stack = 5;
    const int status = in_child([&] {
      if (on_stack != 5) return 10;
      on_stack = 6;
      return given->check_in_child();
    });
    return reinterpret_cast<void*>(static_cast<std::intptr_t>(on_stack == 5 ? status : 11));
  };
  ASSERT_EQ(pthread_create(&thread, &attributes, body, &inherited), 0);
  void* result = nullptr;
  pthread_join(thread, &result);
  EXPECT_EQ(result, nullptr);
  EXPECT_TRUE(inherited.is_unchanged());
  pthread_attr_destroy(&attributes);
  munmap(stack, kStack);
}

TEST(Fork, WorksWhileOtherThreadsAllocate) {
  std::atomic<bool> stop{false};
  std::thread busy([&stop] {
    for (unsigned i = 0; !stop; ++i) free(malloc(4096 + i * 97 % 60'000));
  });
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(in_child([] {
                for (int k = 0; k < 20; ++k) {
                  void* const block = malloc(20'000);
                  std::memset(block, 1, 20'000);
                  free(block);
                }
                return 0;
              }),
              0);
  }
  stop = true;
  busy.join();
}

TEST(Fork, KeepsTheSignalMask) {
  sigset_t wanted;
  sigemptyset(&wanted);
  sigaddset(&wanted, SIGUSR2);
  sigset_t before;
  pthread_sigmask(SIG_SETMASK, &wanted, &before);
  const auto has_wanted = [] {
    sigset_t now;
    pthread_sigmask(SIG_SETMASK, nullptr, &now);
    return sigismember(&now, SIGUSR2) == 1 && sigismember(&now, SIGUSR1) == 0 && sigismember(&now, SIGTERM) == 0;
  };
  EXPECT_EQ(in_child([&] { return has_wanted() ? 0 : 1; }), 0);
  EXPECT_TRUE(has_wanted());
  pthread_sigmask(SIG_SETMASK, &before, nullptr);
}

TEST(Fork, AChildThatFindsNoMemoryForItsCopiesEnds) {
  EXPECT_EQ(in_child([] {
              std::byte* const large = map_plain(std::size_t{1} << 30);
              std::memset(large, 1, kPage);
              const rlimit now{std::size_t{3} << 29, RLIM_INFINITY};
              if (setrlimit(RLIMIT_AS, &now) != 0) return 1;
              const int status = in_child([] { return 0; });
              return status == 127 && all_are(large, kPage, 1) ? 0 : 2;
            }),
            0);
}

/// Opens files until no descriptor is free, and then closes `free` of them.
void use_descriptors(int free) {
  int last = -1;
  for (int fd = 0; (fd = open("/dev/null", O_RDONLY | O_CLOEXEC)) >= 0;) last = fd;
  for (int i = 0; i < free; ++i) close(last - i);
}

TEST(Fork, WorksWithoutFreeDescriptors) {
  for (const bool is_hard : {false, true}) {
    for (const int free : {0, 1, 2}) {
      SCOPED_TRACE(free);
      EXPECT_EQ(in_child([&] {
                  Inherited inherited;
                  rlimit limit{};
                  getrlimit(RLIMIT_NOFILE, &limit);
                  limit.rlim_cur = 64;
                  if (is_hard) limit.rlim_max = 64;
                  if (setrlimit(RLIMIT_NOFILE, &limit) != 0) return 90;
                  use_descriptors(free);
                  const int status = in_child([&] {
                    std::memset(inherited.block, 91, 100'000);
                    return all_are(inherited.mapped, 2 * kPage, 1) ? 0 : 1;
                  });
                  rlimit after{};
                  getrlimit(RLIMIT_NOFILE, &after);
                  if (after.rlim_cur != 64) return 80;
                  return inherited.is_unchanged() ? status : 70;
                }),
                0);
    }
  }
}

TEST(Fork, WorksWithoutProc) {
  if (geteuid() != 0) GTEST_SKIP() << "chroot wants root";
  EXPECT_EQ(in_child([] {
              Inherited inherited;
              if (chroot("/sys") != 0 || chdir("/") != 0) return 90;
              const int status = in_child([&] {
                if (!inherited.is_unchanged()) return 1;
                std::memset(inherited.block, 91, 100'000);
                return 0;
              });
              return inherited.is_unchanged() ? status : 70;
            }),
            0);
}

TEST(File, IsClosedByExec) {
  EXPECT_EQ(fcntl(own_memory_fd(), F_GETFD) & FD_CLOEXEC, FD_CLOEXEC);
}

/// A daemon closes all descriptors that it does not know.
TEST(File, AProgramCannotCloseIt) {
  EXPECT_EQ(in_child([] {
              Inherited inherited;
              const int fd = own_memory_fd();
              if (close(fd) != -1 || errno != EBADF) return 10;
              const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
              if (dup2(other, fd) != fd || own_memory_fd() < 0 || own_memory_fd() == fd) return 11;
              const int more = fcntl(other, F_DUPFD_CLOEXEC, own_memory_fd() + 1);
              if (close_range(0, ~0U, 0) != 0 || own_memory_fd() < 0) return 12;
              if (fcntl(other, F_GETFD) != -1 || fcntl(more, F_GETFD) != -1) return 13;
              closefrom(0);
              for (int i = 0; i < 1024; ++i) close(i);
              std::byte* const memory = map_plain(kPage);
              if (reach(memory, kPage) != Reach::kMapped) return 14;
              const int status = in_child([&] { return inherited.check_in_child(); });
              return inherited.is_unchanged() ? status : 15;
            }),
            0);
}

TEST(File, AProgramThatClosesItByTheSystemCallGetsOrdinaryMemory) {
  EXPECT_EQ(in_child([] {
              Inherited inherited;
              void* const before = malloc(20'000);
              const int fd = own_memory_fd();
              syscall(SYS_close, fd);
              const int other = open("/dev/null", O_RDWR | O_CLOEXEC);
              dup2(other, fd);  // the same number is another file now
              void* const block = malloc(std::size_t{5} << 20);
              std::byte* const memory = map_plain(kPage);
              if (block == nullptr || memory == MAP_FAILED) return 1;
              std::memset(block, 1, std::size_t{5} << 20);
              std::memset(memory, 1, kPage);
              if (own_memory_fd() >= 0 || reach(memory, kPage) != Reach::kOff) return 2;
              const int status = in_child([&] {
                if (!inherited.is_unchanged()) return 1;
                std::memset(inherited.block, 91, 100'000);
                return 0;
              });
              if (status != 0 || !inherited.is_unchanged()) return 3;
              free(block);
              free(before);
              munmap(memory, kPage);
              return 0;
            }),
            0);
}

// Runs with a limit on file sizes, see CMakeLists.txt.
TEST(WithoutFile, AllocationsAreOrdinaryMemory) {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &limit), 0);
  if (limit.rlim_cur == RLIM_INFINITY) GTEST_SKIP() << "for a process with a limit on file sizes";
  EXPECT_EQ(own_memory_fd(), -1);
  void* const block = malloc(std::size_t{5} << 20);
  ASSERT_NE(block, nullptr);
  std::byte* const memory = map_plain(kPage);
  EXPECT_EQ(reach(memory, kPage), Reach::kOff);
  EXPECT_EQ(in_child([] { return 0; }), 0);
  munmap(memory, kPage);
  free(block);
}

}  // namespace
}  // namespace rdmacomm::softdev
