// Registered memory counts towards RLIMIT_MEMLOCK, unless the process may exceed the limit.
#include "softdev/memory/locked_memory.h"

#include <linux/capability.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>

#include "rdmacomm/softdev.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"
#include "support/environment_variable.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kPageBytes = 4096;
constexpr std::size_t kLimit = 64 * kPageBytes;

void limit_memory() {
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_MEMLOCK, &limit), 0);
  limit.rlim_cur = kLimit;
  ASSERT_EQ(setrlimit(RLIMIT_MEMLOCK, &limit), 0);
}

void drop_capability() {
  __user_cap_header_struct header{_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct sets[_LINUX_CAPABILITY_U32S_3] = {};
  ASSERT_EQ(syscall(SYS_capget, &header, sets), 0);
  sets[0].effective &= ~(1U << CAP_IPC_LOCK);
  ASSERT_EQ(syscall(SYS_capset, &header, sets), 0);
}

/// An ordinary process, with a limit. Both last as long as the process, so the test runs in a child.
struct Limited {
  rdmacomm::testing::EnvironmentVariable on;
  Node node;
  std::byte* memory;

  explicit Limited(const char* setting = "on")
      : on(kMemlockVariable, setting), memory(static_cast<std::byte*>(aligned_alloc(kPageBytes, 2 * kLimit))) {
    limit_memory();
    drop_capability();
  }
  Limited(const Limited&) = delete;
  Limited& operator=(const Limited&) = delete;
  ~Limited() { std::free(memory); }
  [[nodiscard]] verbs::MrHandle register_memory(std::size_t offset, std::size_t length, int access = kAllRemote) const {
    return verbs::MrHandle(api(), api().reg_mr(node.pd.get(), memory + offset, length, access));
  }
};

/// Runs `body` in a child process, and passes its failures on.
template <typename Body>
void in_child(Body&& body) {
  const pid_t child = fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    body();
    _exit(::testing::Test::HasFailure() ? 1 : 0);
  }
  int status = 0;
  ASSERT_EQ(waitpid(child, &status, 0), child);
  EXPECT_EQ(status, 0);
}

TEST(LockedMemory, ARegistrationBeyondTheLimitFails) {
  in_child([] {
    const Limited limited;
    EXPECT_TRUE(limited.register_memory(0, kLimit));
    errno = 0;
    EXPECT_FALSE(limited.register_memory(0, kLimit + 1));
    EXPECT_EQ(errno, ENOMEM);
  });
}

TEST(LockedMemory, AllRegistrationsCountUntilTheyEnd) {
  in_child([] {
    const Limited limited;
    const verbs::MrHandle half = limited.register_memory(0, kLimit / 2);
    verbs::MrHandle same = limited.register_memory(0, kLimit / 2);
    EXPECT_TRUE(half && same) << "a page counts as often as it is registered";
    EXPECT_FALSE(limited.register_memory(kLimit, 1));
    same.reset();
    EXPECT_TRUE(limited.register_memory(kLimit, kLimit / 2));
  });
}

TEST(LockedMemory, EachPageThatIsTouchedCounts) {
  in_child([] {
    const Limited limited;
    const verbs::MrHandle most = limited.register_memory(0, kLimit - 2 * kPageBytes);
    EXPECT_TRUE(limited.register_memory(kPageBytes - 1, 2)) << "two pages";
    EXPECT_FALSE(limited.register_memory(kPageBytes - 1, kPageBytes + 2)) << "three pages";
  });
}

TEST(LockedMemory, ARefusedReregistrationChangesNothing) {
  in_child([] {
    const Limited limited;
    const verbs::MrHandle mr = limited.register_memory(0, kLimit);
    EXPECT_NE(rereg_mr(mr.get(), IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, limited.memory, kLimit, 0), 0);
    EXPECT_EQ(mr->length, kLimit);
    EXPECT_FALSE(limited.register_memory(0, 1));
  });
}

TEST(LockedMemory, PagesOnDemandDoNotCount) {
  in_child([] {
    const Limited limited;
    EXPECT_TRUE(limited.register_memory(0, 2 * kLimit, kAllRemote | IBV_ACCESS_ON_DEMAND));
  });
}

TEST(LockedMemory, AChildOfForkBeginsAtZero) {
  in_child([] {
    const Limited limited;
    const verbs::MrHandle all = limited.register_memory(0, kLimit);
    EXPECT_TRUE(all);
    in_child([] {  // without a device: a sanitizer starts no threads after this fork
      std::vector<std::byte> bytes(kLimit - kPageBytes);
      LockedMemory locked;
      EXPECT_EQ(LockedMemory::add(reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(), locked), 0);
      LockedMemory more;
      EXPECT_EQ(LockedMemory::add(reinterpret_cast<std::uint64_t>(bytes.data()), bytes.size(), more), ENOMEM);
    });
  });
}

TEST(LockedMemory, APrivilegedProcessHasNoLimit) {
  if (geteuid() != 0) GTEST_SKIP() << "not root";
  in_child([] {
    const rdmacomm::testing::EnvironmentVariable on(kMemlockVariable, "on");
    const Node node;
    limit_memory();
    std::vector<std::byte> bytes(2 * kLimit);
    EXPECT_TRUE(verbs::MrHandle(api(), api().reg_mr(node.pd.get(), bytes.data(), bytes.size(), 0)));
  });
}

TEST(LockedMemory, TheLimitCanBeTurnedOff) {
  in_child([] {
    const Limited limited("off");
    EXPECT_TRUE(limited.register_memory(0, 2 * kLimit));
  });
}

TEST(LockedMemory, AnotherValueIsRefused) {
  const rdmacomm::testing::EnvironmentVariable wrong(kMemlockVariable, "maybe");
  const verbs::DeviceList list(api());
  errno = 0;
  EXPECT_EQ(api().open_device(list[0]), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
