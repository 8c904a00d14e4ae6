// Registrations of the memory behind a file descriptor: a memfd, which every machine supports, and a dma-buf if the
// machine has one.
#include <fcntl.h>
#include <linux/udmabuf.h>
#include <sys/eventfd.h>
#include <sys/ioctl.h>
#include <sys/mman.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <string>

#include "base/unique_fd.h"
#include "softdev/local/two_processes.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

constexpr std::size_t kDmabufBytes = 1 << 18;
constexpr char kName[] = "dmabuf_test";

/// A file of kDmabufBytes, and the test's own mapping of it.
struct Buffer {
  UniqueFd fd{memfd_create(kName, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  std::byte* data = nullptr;

  Buffer() {
    EXPECT_EQ(ftruncate(fd.get(), kDmabufBytes), 0);
    void* const mapped = mmap(nullptr, kDmabufBytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd.get(), 0);
    EXPECT_NE(mapped, MAP_FAILED);
    data = static_cast<std::byte*>(mapped);
  }
  Buffer(const Buffer&) = delete;
  ~Buffer() { munmap(data, kDmabufBytes); }
  void fill(unsigned seed) const {
    for (std::size_t i = 0; i < kDmabufBytes; ++i) data[i] = static_cast<std::byte>(i * 131 + seed + (i >> 8));
  }
};

verbs::MrHandle registered(const Node& node, int fd, std::uint64_t offset, std::size_t length, std::uint64_t iova,
                           int access = kAllRemote) {
  return verbs::MrHandle(api(), reg_dmabuf_mr(node.pd.get(), offset, length, iova, fd, access));
}

/// A pair with a buffer at each end, registered from an odd offset.
struct DmabufScene {
  static constexpr std::uint64_t kOffset = 4096 + 40;
  static constexpr std::uint64_t kIova = 0xdead'0000'0000'0028;
  static constexpr std::size_t kLength = 200'000;
  Pair pair;
  Buffer a;
  Buffer b;
  verbs::MrHandle a_mr = registered(pair.a_node, a.fd.get(), kOffset, kLength, kIova);
  verbs::MrHandle b_mr = registered(pair.b_node, b.fd.get(), kOffset, kLength, kOffset);

  DmabufScene() {
    EXPECT_NE(a_mr.get(), nullptr);
    EXPECT_NE(b_mr.get(), nullptr);
    a.fill(3);
  }
  [[nodiscard]] ibv_sge a_slice(std::size_t offset, std::size_t length) const {
    return {kIova + offset, static_cast<std::uint32_t>(length), a_mr->lkey};
  }
  [[nodiscard]] ibv_sge b_slice(std::size_t offset, std::size_t length) const {
    return {kOffset + offset, static_cast<std::uint32_t>(length), b_mr->lkey};
  }
  [[nodiscard]] bool arrived(std::size_t bytes, std::size_t from, std::size_t to) const {
    return std::memcmp(a.data + kOffset + from, b.data + kOffset + to, bytes) == 0;
  }
};

TEST(Dmabuf, IsWrittenAndRead) {
  DmabufScene scene;
  for (const std::size_t bytes : {8, 5000, 150'000}) {
    SCOPED_TRACE(bytes);
    const auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, DmabufScene::kOffset + 64, scene.b_mr->rkey);
    ASSERT_EQ(scene.pair.a.post(write, scene.a_slice(16, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes, 16, 64));
    scene.b.fill(static_cast<unsigned>(bytes));
    const auto read = rdma_request(IBV_WR_RDMA_READ, 2, DmabufScene::kOffset + 64, scene.b_mr->rkey);
    ASSERT_EQ(scene.pair.a.post(read, scene.a_slice(16, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes, 16, 64));
  }
}

TEST(Dmabuf, SendsAndReceives) {
  DmabufScene scene;
  for (const std::size_t bytes : {20, 5000, 150'000}) {
    SCOPED_TRACE(bytes);
    ASSERT_EQ(scene.pair.b.post_recv(scene.b_slice(100, bytes), 7), 0);
    ASSERT_EQ(scene.pair.a.post(send_request(1), scene.a_slice(8, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes, 8, 100));
  }
}

TEST(Dmabuf, ChangesAtomically) {
  DmabufScene scene;
  const std::uint64_t before = 41;
  std::memcpy(scene.b.data + DmabufScene::kOffset, &before, sizeof(before));
  const auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, DmabufScene::kOffset, scene.b_mr->rkey, 1);
  ASSERT_EQ(scene.pair.a.post(add, scene.a_slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::to_integer<int>(scene.b.data[DmabufScene::kOffset]), 42);
  EXPECT_EQ(std::to_integer<int>(scene.a.data[DmabufScene::kOffset]), 41);
}

TEST(Dmabuf, AccessBeyondItsLengthIsRefused) {
  DmabufScene scene;
  const auto write =
      rdma_request(IBV_WR_RDMA_WRITE, 1, DmabufScene::kOffset + DmabufScene::kLength - 7, scene.b_mr->rkey);
  ASSERT_EQ(scene.pair.a.post(write, scene.a_slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_ACCESS_ERR);
}

TEST(Dmabuf, TheHandleHasItsOffsetAndLength) {
  DmabufScene scene;
  EXPECT_EQ(reinterpret_cast<std::uint64_t>(scene.a_mr->addr), DmabufScene::kOffset);
  EXPECT_EQ(scene.a_mr->length, DmabufScene::kLength);
  EXPECT_EQ(scene.a_mr->pd, scene.pair.a_node.pd.get());
}

TEST(Dmabuf, OutlivesItsDescriptor) {
  DmabufScene scene;
  scene.b.fd.reset();
  const auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, DmabufScene::kOffset, scene.b_mr->rkey);
  ASSERT_EQ(scene.pair.a.post(write, scene.a_slice(0, 5000)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.arrived(5000, 0, 0));
}

TEST(Dmabuf, AnotherProcessCanWriteIt) {
  constexpr std::size_t kMessage = 5000;
  Child child([](Line line) {
    Node node;
    Qp qp(node);
    Memory memory(node, 1 << 14);
    memory.fill(9);
    const QueueInfo peer = introduce(line, qp, memory);
    ASSERT_EQ(qp.post(rdma_request(IBV_WR_RDMA_WRITE, 1, peer.address, peer.rkey), memory.slice(0, kMessage)), 0);
    EXPECT_EQ(qp.next().status, IBV_WC_SUCCESS);
    line.send({});
  });
  Node node;
  Qp qp(node);
  Buffer buffer;
  const auto mr = registered(node, buffer.fd.get(), 0, kDmabufBytes, 1 << 20);
  const Line line = child.line();
  line.send({qp.number(), mr->rkey, (1 << 20) + 64});
  qp.connect_to(line.receive().qpn);
  line.send({});
  (void)line.receive();  // both are connected
  (void)line.receive();  // the child has written
  Memory expected(node, 1 << 14);
  expected.fill(9);
  EXPECT_EQ(std::memcmp(buffer.data + 64, expected.data, kMessage), 0);
}

/// Number of mappings that this process has of the files.
std::ptrdiff_t mappings() {
  std::ifstream maps("/proc/self/maps");
  std::ptrdiff_t found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find(kName) != std::string::npos ? 1 : 0;
  return found;
}

TEST(Dmabuf, LeavesNothingBehind) {
  Node node;
  Buffer buffer;
  const auto before = mappings();
  auto mr = registered(node, buffer.fd.get(), 0, kDmabufBytes, 0);
  EXPECT_GT(mappings(), before);
  mr.reset();
  EXPECT_EQ(mappings(), before);
}

TEST(Dmabuf, InvalidRegistrationsAreRefused) {
  Node node;
  Buffer buffer;
  const UniqueFd event(eventfd(0, EFD_CLOEXEC));
  const auto refused = [&](int fd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int access,
                           int error) {
    errno = 0;
    EXPECT_EQ(reg_dmabuf_mr(node.pd.get(), offset, length, iova, fd, access), nullptr);
    EXPECT_EQ(errno, error);
  };
  const int fd = buffer.fd.get();
  refused(-1, 0, 4096, 0, kAllRemote, EBADF);
  refused(event.get(), 0, 4096, 0, kAllRemote, EOPNOTSUPP);
  refused(fd, 0, 0, 0, kAllRemote, EINVAL);
  refused(fd, 0, kDmabufBytes + 1, 0, kAllRemote, EINVAL);
  refused(fd, kDmabufBytes, 1, kDmabufBytes, kAllRemote, EINVAL);
  refused(fd, 64, 4096, 65, kAllRemote, EINVAL);  // another offset in its page
  refused(fd, 64, 4096, 0, kAllRemote, EINVAL);
  refused(fd, std::uint64_t{0} - 4096, 8192, 0, kAllRemote, EINVAL);
  refused(fd, 0, 8192, std::uint64_t{0} - 4096, kAllRemote, EINVAL);
  refused(fd, 0, 4096, 0, IBV_ACCESS_REMOTE_WRITE, EINVAL);
  refused(fd, 0, 4096, 0, IBV_ACCESS_REMOTE_ATOMIC, EINVAL);
  refused(fd, 0, 4096, 0, kAllRemote | IBV_ACCESS_MW_BIND, EOPNOTSUPP);
  refused(fd, 0, 4096, 0, kAllRemote | IBV_ACCESS_ZERO_BASED, EOPNOTSUPP);
  refused(fd, 0, 4096, 0, IBV_ACCESS_ON_DEMAND, EOPNOTSUPP);
}

TEST(Dmabuf, AReadOnlyDescriptorIsRegisteredForReading) {
  DmabufScene scene;
  const std::string path = "/proc/self/fd/" + std::to_string(scene.b.fd.get());
  const UniqueFd readable(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  errno = 0;
  EXPECT_EQ(reg_dmabuf_mr(scene.pair.b_node.pd.get(), 0, 4096, 0, readable.get(), IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EACCES);
  const auto mr = registered(scene.pair.b_node, readable.get(), 0, 4096, 0, IBV_ACCESS_REMOTE_READ);
  ASSERT_NE(mr.get(), nullptr);
  scene.b.fill(8);
  ASSERT_EQ(scene.pair.a.post(rdma_request(IBV_WR_RDMA_READ, 1, 16, mr->rkey), scene.a_slice(0, 100)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(scene.a.data + DmabufScene::kOffset, scene.b.data + 16, 100), 0);
}

TEST(Dmabuf, CannotBeReregistered) {
  DmabufScene scene;
  errno = 0;
  EXPECT_EQ(rereg_mr(scene.b_mr.get(), IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, IBV_ACCESS_LOCAL_WRITE),
            IBV_REREG_MR_ERR_INPUT);
  EXPECT_EQ(errno, EINVAL);
}

TEST(Dmabuf, OfTheKernelsOwnKind) {
  const UniqueFd maker(open("/dev/udmabuf", O_RDWR | O_CLOEXEC));
  if (!maker) GTEST_SKIP() << "no /dev/udmabuf: " << std::strerror(errno);
  DmabufScene scene;
  ASSERT_EQ(fcntl(scene.b.fd.get(), F_ADD_SEALS, F_SEAL_SHRINK), 0);
  udmabuf_create create{};
  create.memfd = static_cast<__u32>(scene.b.fd.get());
  create.flags = UDMABUF_FLAGS_CLOEXEC;
  create.size = kDmabufBytes;
  const UniqueFd dmabuf(ioctl(maker.get(), UDMABUF_CREATE, &create));
  ASSERT_TRUE(dmabuf) << std::strerror(errno);
  const auto mr = registered(scene.pair.b_node, dmabuf.get(), 0, kDmabufBytes, 0);
  ASSERT_NE(mr.get(), nullptr) << std::strerror(errno);
  for (const std::size_t bytes : {8, 5000, 150'000}) {
    SCOPED_TRACE(bytes);
    const auto write = rdma_request(IBV_WR_RDMA_WRITE, 1, DmabufScene::kOffset + 64, mr->rkey);
    ASSERT_EQ(scene.pair.a.post(write, scene.a_slice(16, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes, 16, 64));
  }
}

}  // namespace
}  // namespace rdmacomm::softdev::test
