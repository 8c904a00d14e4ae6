// Registrations whose requests use other addresses (iova) than those of the memory, at both ends.
#include <cerrno>
#include <cstring>
#include <string>

#include "softdev/context/soft_context.h"
#include "softdev/verbs/raw_verbs.h"
#include "softdev/verbs/soft_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

/// No process has memory at this address, so that code that forgets to translate it fails.
constexpr std::uint64_t kIova = 0xdead'0000'0000'0000;
constexpr std::size_t kIovaBytes = 1 << 18;

/// The way in which peers access the memory: mapped, by system calls, or by its owner's serving thread.
enum class Reach { kMapped, kSystemCalls, kServed };

/// Memory with two registrations: one with its own addresses, which is not used, and one with iova addresses.
struct Region {
  Memory memory;
  std::uint64_t iova;
  verbs::MrHandle mr;

  explicit Region(Node& node, Reach reach = Reach::kMapped, std::uint64_t iova_ = kIova,
                  int access = kAllRemote | IBV_ACCESS_MW_BIND, std::size_t begin = 0)
      : memory(node, kIovaBytes, kAllRemote, reach != Reach::kMapped), iova(iova_) {
    mr = verbs::MrHandle(api(), reg_mr_iova(node.pd.get(), memory.data + begin, kIovaBytes - begin, iova, access));
    EXPECT_NE(mr.get(), nullptr);
    if (reach != Reach::kServed) return;
    MrTable& table = SoftContext::from(node.context.get()).registrations();
    Registration registration = table.find(mr->lkey);
    registration.arena = Arena::kServed;
    table.replace(mr->lkey, registration);
  }
  [[nodiscard]] ibv_sge slice(std::size_t offset, std::size_t length) const {
    return {iova + offset, static_cast<std::uint32_t>(length), mr->lkey};
  }
  [[nodiscard]] std::uint64_t address(std::size_t offset = 0) const { return iova + offset; }
  [[nodiscard]] std::byte* data() const { return memory.data; }
};

std::uint64_t word_at(const std::byte* from) {
  std::uint64_t word = 0;
  std::memcpy(&word, from, sizeof(word));
  return word;
}

struct IovaScene {
  Pair pair;
  Region local;
  Region remote;

  explicit IovaScene(Reach reach = Reach::kMapped)
      : local(pair.a_node, reach), remote(pair.b_node, reach, kIova + (1 << 20)) {
    local.memory.fill(3);
  }
  ibv_wc_status run(ibv_wr_opcode opcode, std::uint64_t address, std::uint32_t key, ibv_sge slice) {
    EXPECT_EQ(pair.a.post(rdma_request(opcode, 1, address, key), slice), 0);
    return pair.a.next().status;
  }
  ibv_wc_status write(std::uint64_t address, std::uint32_t key, std::size_t bytes = 8) {
    return run(IBV_WR_RDMA_WRITE, address, key, local.slice(0, bytes));
  }
  [[nodiscard]] bool arrived(std::size_t bytes, std::size_t from = 0, std::size_t to = 0) const {
    return std::memcmp(local.data() + from, remote.data() + to, bytes) == 0;
  }
};

class Iova : public ::testing::TestWithParam<Reach> {
 protected:
  IovaScene scene{GetParam()};
};

constexpr std::size_t kLengths[] = {1, 8, 48, 49, 4000, 100'000};

TEST_P(Iova, Writes) {
  for (const std::size_t bytes : kLengths) {
    SCOPED_TRACE(bytes);
    std::memset(scene.remote.data(), 0, kIovaBytes);
    EXPECT_EQ(
        scene.run(IBV_WR_RDMA_WRITE, scene.remote.address(64), scene.remote.mr->rkey, scene.local.slice(16, bytes)),
        IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes, 16, 64));
    EXPECT_EQ(scene.remote.data()[64 + bytes], std::byte{0});
  }
}

TEST_P(Iova, Reads) {
  for (const std::size_t bytes : kLengths) {
    SCOPED_TRACE(bytes);
    scene.remote.memory.fill(static_cast<unsigned>(bytes));
    EXPECT_EQ(
        scene.run(IBV_WR_RDMA_READ, scene.remote.address(64), scene.remote.mr->rkey, scene.local.slice(16, bytes)),
        IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(bytes, 16, 64));
  }
}

TEST_P(Iova, Sends) {
  for (const std::size_t bytes : kLengths) {
    SCOPED_TRACE(bytes);
    std::memset(scene.remote.data(), 0, kIovaBytes);
    ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(4096, bytes), 7), 0);
    ASSERT_EQ(scene.pair.a.post(send_request(1), scene.local.slice(32, bytes)), 0);
    EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
    const ibv_wc received = scene.pair.b.next();
    EXPECT_EQ(received.status, IBV_WC_SUCCESS);
    EXPECT_EQ(received.byte_len, bytes);
    EXPECT_TRUE(scene.arrived(bytes, 32, 4096));
  }
}

TEST_P(Iova, SendsThatWaitForTheirReceive) {
  ASSERT_EQ(scene.pair.a.post(send_request(1), scene.local.slice(0, 4000)), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(2), scene.local.slice(4000, 20)), 0);
  EXPECT_TRUE(scene.pair.a.poll().empty());
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 4000), 7), 0);
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(4000, 20), 8), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.b.next().wr_id, 7U);
  EXPECT_EQ(scene.pair.b.next().wr_id, 8U);
  EXPECT_TRUE(scene.arrived(4020));
}

TEST_P(Iova, SlicesOfBothKindsInOneRequest) {
  ibv_sge to[] = {scene.remote.memory.slice(0, 10), scene.remote.slice(10, 90), scene.remote.memory.slice(100, 0),
                  scene.remote.memory.slice(100, 900)};
  ibv_sge from[] = {scene.local.slice(0, 500), scene.local.memory.slice(500, 300), scene.local.slice(800, 200)};
  ASSERT_EQ(scene.pair.b.post_recv(to, 7), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(1), from), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.arrived(1000));
}

TEST_P(Iova, ASmallMessageIntoSlicesOfBothKinds) {
  ibv_sge to[] = {scene.remote.memory.slice(0, 10), scene.remote.slice(10, 20), scene.remote.memory.slice(30, 10)};
  ASSERT_EQ(scene.pair.b.post_recv(to, 7), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(1), scene.local.slice(0, 35)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.arrived(35));
}

TEST_P(Iova, Atomics) {
  const std::uint64_t first = word_at(scene.remote.data() + 64);
  const auto key = scene.remote.mr->rkey;
  const auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, scene.remote.address(64), key, 5);
  ASSERT_EQ(scene.pair.a.post(add, scene.local.slice(8, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(word_at(scene.local.data() + 8), first);
  const auto swap = atomic_request(IBV_WR_ATOMIC_CMP_AND_SWP, 1, scene.remote.address(64), key, first + 5, 77);
  ASSERT_EQ(scene.pair.a.post(swap, scene.local.slice(16, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(word_at(scene.local.data() + 16), first + 5);
  EXPECT_EQ(word_at(scene.remote.data() + 64), 77U);
}

TEST_P(Iova, WritesWithImmediateData) {
  ASSERT_EQ(scene.pair.b.post_recv(std::span<ibv_sge>(), 7), 0);
  auto wr = rdma_request(IBV_WR_RDMA_WRITE_WITH_IMM, 1, scene.remote.address(), scene.remote.mr->rkey);
  wr.imm_data = htonl(11);
  ASSERT_EQ(scene.pair.a.post(wr, scene.local.slice(0, 100'000)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(ntohl(scene.pair.b.next().imm_data), 11U);
  EXPECT_TRUE(scene.arrived(100'000));
}

TEST_P(Iova, SharedReceives) {
  ibv_srq_init_attr init{};
  init.attr = {4, 2, 0};
  const verbs::SrqHandle srq(api(), api().create_srq(scene.pair.b_node.pd.get(), &init));
  Qp sender(scene.pair.a_node);
  Qp target(scene.pair.b_node, {.srq = srq.get()});
  sender.connect_to(target.number());
  target.connect_to(sender.number());
  std::size_t at = 0;
  for (const std::size_t bytes : {20, 4000}) {
    ibv_sge slice = scene.remote.slice(at, bytes);
    ibv_recv_wr wr{7, nullptr, &slice, 1};
    ibv_recv_wr* bad = nullptr;
    ASSERT_EQ(ibv_post_srq_recv(srq.get(), &wr, &bad), 0);
    ASSERT_EQ(sender.post(send_request(1), scene.local.slice(at, bytes)), 0);
    EXPECT_EQ(sender.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(target.next().status, IBV_WC_SUCCESS);
    at += bytes;
  }
  EXPECT_TRUE(scene.arrived(at));
}

std::string name_of(const ::testing::TestParamInfo<Reach>& one) {
  if (one.param == Reach::kMapped) return "Mapped";
  return one.param == Reach::kSystemCalls ? "BySystemCalls" : "ByItsOwner";
}
INSTANTIATE_TEST_SUITE_P(Reached, Iova, ::testing::Values(Reach::kMapped, Reach::kSystemCalls, Reach::kServed),
                         name_of);

TEST(IovaBounds, AccessOutsideItsBytesIsRefused) {
  const auto outcome_at = [](std::uint64_t offset, std::size_t bytes) {
    IovaScene scene;
    return scene.write(scene.remote.address(offset), scene.remote.mr->rkey, bytes);
  };
  EXPECT_EQ(outcome_at(0, kIovaBytes), IBV_WC_SUCCESS);
  EXPECT_EQ(outcome_at(std::uint64_t{0} - 1, 8), IBV_WC_REM_ACCESS_ERR);
  EXPECT_EQ(outcome_at(kIovaBytes - 7, 8), IBV_WC_REM_ACCESS_ERR);
}

TEST(IovaBounds, TheAddressesOfItsMemoryAreRefused) {
  IovaScene scene;
  EXPECT_EQ(scene.write(scene.remote.memory.address(), scene.remote.mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST(IovaBounds, SlicesOutsideAreRefused) {
  const auto outcome_of = [](auto&& slice_of) {
    IovaScene scene;
    const ibv_sge slice = slice_of(scene);
    return scene.run(IBV_WR_RDMA_WRITE, scene.remote.address(), scene.remote.mr->rkey, slice);
  };
  const auto with_key = [](ibv_sge slice, std::uint32_t key) { return ibv_sge{slice.addr, slice.length, key}; };
  EXPECT_EQ(outcome_of([&](IovaScene& s) { return with_key(s.local.memory.slice(0, 8), s.local.mr->lkey); }),
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(outcome_of([&](IovaScene& s) { return with_key(s.local.slice(0, 8), s.local.memory.mr->lkey); }),
            IBV_WC_LOC_PROT_ERR);
  EXPECT_EQ(outcome_of([](IovaScene& s) { return s.local.slice(kIovaBytes - 7, 8); }), IBV_WC_LOC_PROT_ERR);
}

TEST(IovaBounds, AReceiveOutsideIsMalformed) {
  IovaScene scene;
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(kIovaBytes - 7, 8), 7), 0);
  ASSERT_EQ(scene.pair.a.post(send_request(1), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(IovaBounds, AReceiveWhoseMemoryWasDeregisteredMeanwhile) {
  IovaScene scene;
  ASSERT_EQ(scene.pair.b.post_recv(scene.remote.slice(0, 64), 7), 0);
  scene.remote.mr.reset();
  ASSERT_EQ(scene.pair.a.post(send_request(1), scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_OP_ERR);
  EXPECT_EQ(scene.pair.b.next().status, IBV_WC_LOC_PROT_ERR);
}

TEST(IovaBounds, TheHighestAndTheLowestAddresses) {
  for (const std::uint64_t iova : {std::uint64_t{0}, std::uint64_t{0} - kIovaBytes - 4096}) {
    SCOPED_TRACE(iova);
    IovaScene scene;
    Region region(scene.pair.b_node, Reach::kSystemCalls, iova);
    EXPECT_EQ(scene.write(region.address(kIovaBytes - 8), region.mr->rkey), IBV_WC_SUCCESS);
    EXPECT_EQ(std::memcmp(region.data() + kIovaBytes - 8, scene.local.data(), 8), 0);
    EXPECT_EQ(scene.write(region.address(kIovaBytes), region.mr->rkey), IBV_WC_REM_ACCESS_ERR);
  }
}

TEST(IovaRegistration, TheHandleHasTheAddressOfTheMemory) {
  Node node;
  const Region region(node);
  EXPECT_EQ(region.mr->addr, region.data());
  EXPECT_EQ(region.mr->length, kIovaBytes);
}

TEST(IovaRegistration, InvalidArgumentsAreRefused) {
  Node node;
  Memory memory(node);
  const auto refused = [&](void* address, std::size_t length, std::uint64_t iova, int access, int error) {
    errno = 0;
    EXPECT_EQ(reg_mr_iova(node.pd.get(), address, length, iova, access), nullptr);
    EXPECT_EQ(errno, error);
  };
  refused(memory.data, 4096, kIova + 1, kAllRemote, EINVAL);  // another offset in its page
  refused(memory.data + 64, 64, kIova, kAllRemote, EINVAL);
  refused(memory.data, 0, kIova, kAllRemote, EINVAL);
  refused(memory.data, 4096, std::uint64_t{0} - 4096, kAllRemote, EINVAL);  // ends beyond the last address
  refused(memory.data, 8192, std::uint64_t{0} - 4096, kAllRemote, EINVAL);
  refused(nullptr, 4096, kIova, kAllRemote, EFAULT);
  refused(memory.data, 4096, kIova, IBV_ACCESS_REMOTE_WRITE, EINVAL);
  refused(memory.data, 4096, kIova, 1 << 19, EOPNOTSUPP);
}

TEST(IovaRegistration, ZeroBasedCountsFromItsFirstByte) {
  IovaScene scene;
  const Region region(scene.pair.b_node, Reach::kMapped, 0, kAllRemote | IBV_ACCESS_ZERO_BASED, 12);
  EXPECT_EQ(scene.write(4, region.mr->rkey), IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(region.data() + 16, scene.local.data(), 8), 0);
  const auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, region.mr->rkey, 1);
  ASSERT_EQ(scene.pair.a.post(add, scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_INV_REQ_ERR) << "its memory is at an odd place";
}

TEST(IovaRegistration, KeepsItsAddressesUntilItIsReregistered) {
  IovaScene scene;
  ibv_mr* const mr = scene.remote.mr.get();
  ASSERT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_ACCESS, nullptr, nullptr, 0, kAllRemote), 0);
  EXPECT_EQ(scene.write(scene.remote.address(8), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.arrived(8, 0, 8));
  ASSERT_EQ(rereg_mr(mr, IBV_REREG_MR_CHANGE_TRANSLATION, nullptr, scene.remote.data(), 4096, 0), 0);
  EXPECT_EQ(scene.write(scene.remote.memory.address(16), mr->rkey), IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.arrived(8, 0, 16));
  EXPECT_EQ(scene.write(scene.remote.address(16), mr->rkey), IBV_WC_REM_ACCESS_ERR);
}

/// A window of b over an iova region, which `a` accesses.
struct WindowScene : IovaScene {
  ibv_mw* window;
  explicit WindowScene(ibv_mw_type type) : window(ibv_alloc_mw(pair.b_node.pd.get(), type)) {}
  ~WindowScene() { EXPECT_EQ(ibv_dealloc_mw(window), 0); }
  ibv_wc_status bind(std::uint64_t address, std::uint64_t length, unsigned access) {
    const ibv_mw_bind_info info{remote.mr.get(), address, length, access};
    if (window->type == IBV_MW_TYPE_1) {
      ibv_mw_bind request{7, IBV_SEND_SIGNALED, info};
      EXPECT_EQ(ibv_bind_mw(pair.b.qp.get(), window, &request), 0);
    } else {
      ibv_send_wr wr{};
      wr.opcode = IBV_WR_BIND_MW;
      wr.bind_mw = {window, ibv_inc_rkey(window->rkey), info};
      EXPECT_EQ(pair.b.post(wr, std::span<ibv_sge>()), 0);
      window->rkey = wr.bind_mw.rkey;
    }
    return pair.b.next().status;
  }
};

TEST(IovaWindows, UseTheAddressesOfTheirRegistration) {
  for (const ibv_mw_type type : {IBV_MW_TYPE_1, IBV_MW_TYPE_2}) {
    SCOPED_TRACE(type);
    WindowScene scene(type);
    ASSERT_EQ(scene.bind(scene.remote.address(64), 128, IBV_ACCESS_REMOTE_WRITE), IBV_WC_SUCCESS);
    EXPECT_EQ(scene.write(scene.remote.address(64), scene.window->rkey, 128), IBV_WC_SUCCESS);
    EXPECT_TRUE(scene.arrived(128, 0, 64));
    EXPECT_EQ(scene.write(scene.remote.address(63), scene.window->rkey), IBV_WC_REM_ACCESS_ERR);
  }
}

TEST(IovaWindows, AreNotBoundByTheAddressesOfTheMemory) {
  WindowScene scene(IBV_MW_TYPE_2);
  EXPECT_EQ(scene.bind(scene.remote.memory.address(), 64, IBV_ACCESS_REMOTE_WRITE), IBV_WC_MW_BIND_ERR);
}

TEST(IovaWindows, ZeroBasedCountFromTheirFirstByte) {
  WindowScene scene(IBV_MW_TYPE_2);
  constexpr unsigned kAccess = IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_REMOTE_ATOMIC | IBV_ACCESS_ZERO_BASED;
  ASSERT_EQ(scene.bind(scene.remote.address(100), 128, kAccess), IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(28, scene.window->rkey, 100), IBV_WC_SUCCESS);
  EXPECT_TRUE(scene.arrived(100, 0, 128));
  const auto add = atomic_request(IBV_WR_ATOMIC_FETCH_AND_ADD, 1, 8, scene.window->rkey, 1);
  ASSERT_EQ(scene.pair.a.post(add, scene.local.slice(0, 8)), 0);
  EXPECT_EQ(scene.pair.a.next().status, IBV_WC_REM_INV_REQ_ERR) << "its memory is at an odd place";
}

TEST(IovaWindows, ZeroBasedOnesEndWithTheirLastByte) {
  WindowScene scene(IBV_MW_TYPE_2);
  ASSERT_EQ(scene.bind(scene.remote.address(100), 128, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED),
            IBV_WC_SUCCESS);
  EXPECT_EQ(scene.write(121, scene.window->rkey), IBV_WC_REM_ACCESS_ERR);
}

TEST(IovaWindows, OfTypeOneAreNotZeroBased) {
  WindowScene scene(IBV_MW_TYPE_1);
  EXPECT_EQ(scene.bind(scene.remote.address(), 128, IBV_ACCESS_REMOTE_WRITE | IBV_ACCESS_ZERO_BASED),
            IBV_WC_MW_BIND_ERR);
}

TEST(IovaUnreliable, Requests) {
  Pair pair({.type = IBV_QPT_UC}, {.type = IBV_QPT_UC});
  Region local(pair.a_node);
  Region remote(pair.b_node);
  local.memory.fill(5);
  ASSERT_EQ(pair.a.post(rdma_request(IBV_WR_RDMA_WRITE, 1, remote.address(64), remote.mr->rkey), local.slice(0, 5000)),
            0);
  EXPECT_EQ(pair.a.next().status, IBV_WC_SUCCESS);
  ASSERT_EQ(pair.b.post_recv(remote.slice(8192, 64), 7), 0);
  ASSERT_EQ(pair.a.post(send_request(2), local.slice(0, 64)), 0);
  EXPECT_EQ(pair.b.next().status, IBV_WC_SUCCESS);
  EXPECT_EQ(std::memcmp(remote.data() + 64, local.data(), 5000), 0);
  EXPECT_EQ(std::memcmp(remote.data() + 8192, local.data(), 64), 0);
}

TEST(IovaUnreliable, Datagrams) {
  Node a_node;
  Node b_node;
  Qp a(a_node, {.type = IBV_QPT_UD});
  Qp b(b_node, {.type = IBV_QPT_UD});
  a.get_ready();
  b.get_ready();
  Region local(a_node);
  Region remote(b_node);
  local.memory.fill(5);
  ibv_gid_entry gid{};
  api().query_gid_entry(a_node.context.get(), 1, 1, &gid);
  ibv_ah_attr attributes{};
  attributes.port_num = attributes.is_global = 1;
  attributes.grh = {gid.gid, 0, 1, 1, 0};
  ibv_ah* const to = create_ah(a_node.pd.get(), &attributes);
  ASSERT_NE(to, nullptr);
  for (const std::size_t bytes : {4, 2000}) {
    ASSERT_EQ(b.post_recv(remote.slice(0, sizeof(ibv_grh) + bytes), 7), 0);
    ibv_send_wr wr = send_request(1);
    wr.wr.ud = {to, b.number(), a.settings.qkey};
    ASSERT_EQ(a.post(wr, local.slice(8, bytes)), 0);
    EXPECT_EQ(a.next().status, IBV_WC_SUCCESS);
    EXPECT_EQ(b.next().byte_len, sizeof(ibv_grh) + bytes);
    EXPECT_EQ(std::memcmp(remote.data() + sizeof(ibv_grh), local.data() + 8, bytes), 0);
  }
  destroy_ah(to);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
