// Costs of posting and polling besides time: no allocation and no system call. Counted over 10,000 requests of each
// kind, in the library and in the software device below it.
#include <gtest/gtest.h>
#include <linux/prctl.h>
#include <signal.h>
#include <sys/prctl.h>

#include <functional>

#include "base/sanitizer.h"
#include "support/allocation_counter.h"
#include "support/connected_pair.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::allocations_of_this_thread;
using rdmacomm::testing::ConnectedPairTest;

#if defined(RDMACOMM_ADDRESS_SANITIZER) || defined(RDMACOMM_THREAD_SANITIZER)
constexpr bool kSanitized = true;
#else
constexpr bool kSanitized = false;
#endif

// Counts the system calls of the calling thread between start() and stop(). The kernel reads `selector` at each system
// call. If it is BLOCK, the kernel delivers SIGSYS instead (prctl(2), PR_SET_SYSCALL_USER_DISPATCH).
class SystemCallTrap {
 public:
  SystemCallTrap() {
    struct sigaction action {};
    action.sa_handler = on_system_call;
    sigaction(SIGSYS, &action, &before_);
    selector = SYSCALL_DISPATCH_FILTER_ALLOW;
    available_ = prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_ON, 0, 0, &selector) == 0;
  }
  SystemCallTrap(const SystemCallTrap&) = delete;
  SystemCallTrap& operator=(const SystemCallTrap&) = delete;
  ~SystemCallTrap() {
    if (available_) prctl(PR_SET_SYSCALL_USER_DISPATCH, PR_SYS_DISPATCH_OFF, 0, 0, 0);
    sigaction(SIGSYS, &before_, nullptr);
  }

  [[nodiscard]] bool available() const { return available_; }
  // From here to stop() the first system call is counted and fails. Later system calls are not trapped.
  static void start() {
    caught = 0;
    selector = SYSCALL_DISPATCH_FILTER_BLOCK;
  }
  static int stop() {
    selector = SYSCALL_DISPATCH_FILTER_ALLOW;
    return caught;
  }

 private:
  static void on_system_call(int) {
    selector = SYSCALL_DISPATCH_FILTER_ALLOW;  // leaving this handler is a system call itself
    caught = caught + 1;
  }

  static inline volatile char selector = SYSCALL_DISPATCH_FILTER_ALLOW;
  static inline volatile sig_atomic_t caught = 0;
  struct sigaction before_ {};
  bool available_ = false;
};

class HotPathTest : public ConnectedPairTest {
 protected:
  static constexpr int kRounds = 10'000;

  void SetUp() override {
    ConnectedPairTest::SetUp();
    source_ = left().buffer(4096);
    target_ = right().buffer(4096);
  }
  BufferSlice from(std::uint32_t bytes) const { return source_.at(0).first(bytes); }
  BufferSlice to(std::uint32_t bytes) const { return target_.at(0).first(bytes); }
  RemoteRegion region() const { return target_.remote_region(); }

  // Polls `channel` until it returns one completion.
  static bool take_one(ChannelCore& channel) {
    Completion completion;
    Polled polled;
    while (polled && polled.empty()) polled = channel.poll({&completion, 1});
    return polled && completion.ok();
  }

  // Posts and polls each kind of request once. Returns false if one fails.
  bool one_of_each(std::uint64_t id) {
    ChannelCore& l = *left().channel;
    ChannelCore& r = *right().channel;
    bool ok = l.post_write(from(8), region(), {.id = id}) && take_one(l);
    ok = ok && l.post_write(from(48), region(), {.id = id, .flags = PostFlags::kInline}) && take_one(l);
    ok = ok && l.post_read(from(4096), region(), {.id = id}) && take_one(l);
    ok = ok && l.post_fetch_add(from(8), region(), {.addend = 1}, {.id = id}) && take_one(l);
    ok = ok && l.post_compare_swap(from(8), region(), {.expected = 1, .desired = 2}, {.id = id}) && take_one(l);
    for (const std::uint32_t bytes : {8U, 4096U}) {
      ok = ok && r.post_recv(to(bytes), {.id = id}) && l.post_send(from(bytes), {.id = id}) && take_one(l) &&
           take_one(r);
    }
    ok = ok && r.post_recv({}, {.id = id}) && l.post_write(from(8), region(), {.id = id, .immediate = 1}) &&
         take_one(l) && take_one(r);
    ok = ok && l.post_write(from(8), region(), {.id = id, .flags = PostFlags::kUnsignaled});
    const BufferSlice slice = from(8);
    const std::array<SendRequest, 3> chain{
        SendRequest{.operation = Operation::kWrite,
                    .local = slice,
                    .remote = region(),
                    .options = {.flags = PostFlags::kUnsignaled}},
        SendRequest{.operation = Operation::kWrite,
                    .local = slice,
                    .remote = region(),
                    .options = {.flags = PostFlags::kUnsignaled}},
        SendRequest{.operation = Operation::kRead, .local = slice, .remote = region()}};
    return ok && l.post_chain(chain) && take_one(l);
  }

  RDMABuffer source_;
  RDMABuffer target_;
};

TEST_F(HotPathTest, TheCounterCounts) {
  const std::uint64_t before = allocations_of_this_thread();
  ::operator delete(::operator new(1));  // a new-expression could be optimised away
  EXPECT_EQ(allocations_of_this_thread(), before + 1);
}

TEST_F(HotPathTest, AllocatesNothing) {
  ASSERT_TRUE(one_of_each(0));
  const std::uint64_t before = allocations_of_this_thread();
  bool ok = true;
  for (int i = 0; i < kRounds && ok; ++i) ok = one_of_each(static_cast<std::uint64_t>(i));
  const std::uint64_t counted_here = allocations_of_this_thread() - before;
  EXPECT_TRUE(ok);
  EXPECT_EQ(counted_here, 0U);
}

TEST_F(HotPathTest, AFullQueueAndAFailureAllocateNothingEither) {
  ASSERT_TRUE(one_of_each(0));  // the first request to a buffer makes the device map it
  const std::uint64_t before = allocations_of_this_thread();
  for (int i = 0; i < 1000; ++i) {
    (void)left().channel->post_write(from(8), {region().address, 4, region().rkey}, {.id = 1});
    (void)left().channel->post_write(from(8), region(), {.id = 1});
  }
  const std::uint64_t counted_here = allocations_of_this_thread() - before;
  EXPECT_EQ(counted_here, 0U);
}

TEST_F(HotPathTest, TheTrapCatches) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's runtime makes system calls of its own";
  const SystemCallTrap trap;
  if (!trap.available()) GTEST_SKIP() << "this kernel has no syscall user dispatch";
  SystemCallTrap::start();
  (void)::getppid();
  EXPECT_EQ(SystemCallTrap::stop(), 1);
}

TEST_F(HotPathTest, MakesNoSystemCall) {
  if (kSanitized) GTEST_SKIP() << "a sanitizer's runtime makes system calls of its own";
  const SystemCallTrap trap;
  if (!trap.available()) GTEST_SKIP() << "this kernel has no syscall user dispatch";
  ASSERT_TRUE(one_of_each(0));
  bool ok = true;
  SystemCallTrap::start();
  for (int i = 0; i < kRounds && ok; ++i) ok = one_of_each(static_cast<std::uint64_t>(i));
  const int system_calls = SystemCallTrap::stop();
  EXPECT_TRUE(ok);
  EXPECT_EQ(system_calls, 0);
}

}  // namespace
}  // namespace rdmacomm
