// The verbs that only newer releases of libibverbs have.
#include "softdev/verbs/newer_verbs.h"

#include <sys/mman.h>
#include <unistd.h>

#include <cerrno>

#include "base/unique_fd.h"
#include "softdev/verbs/raw_verbs.h"

namespace rdmacomm::softdev::test {
namespace {

class NewerVerbs : public ::testing::Test {
 protected:
  Node node;
  Memory memory{node, 8192};

  [[nodiscard]] verbs::MrHandle register_by(const MrInitAttr& attributes) {
    errno = 0;
    return {api(), reg_mr_ex(node.pd.get(), attributes)};
  }
  [[nodiscard]] MrInitAttr by_address() const {
    MrInitAttr attributes{};
    attributes.length = memory.size;
    attributes.access = IBV_ACCESS_LOCAL_WRITE;
    attributes.given = kMrAddress;
    attributes.address = memory.data;
    return attributes;
  }
};

TEST_F(NewerVerbs, RegisterMemoryByAStructure) {
  const auto mr = register_by(by_address());
  ASSERT_NE(mr.get(), nullptr);
  EXPECT_EQ(mr->addr, memory.data);
  EXPECT_EQ(mr->length, memory.size);

  MrInitAttr moved = by_address();
  moved.given |= kMrIova;
  moved.iova = std::uint64_t{1} << 40;
  EXPECT_NE(register_by(moved).get(), nullptr);
  moved.iova += 1;  // another offset in the page than the memory
  EXPECT_EQ(register_by(moved).get(), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(NewerVerbs, RegisterAMemfdByAStructure) {
  const UniqueFd fd(memfd_create("buffer", MFD_CLOEXEC));
  ASSERT_EQ(ftruncate(fd.get(), 8192), 0);
  MrInitAttr attributes{};
  attributes.length = 4096;
  attributes.access = IBV_ACCESS_LOCAL_WRITE;
  attributes.given = kMrFd | kMrFdOffset | kMrIova;
  attributes.fd = fd.get();
  attributes.fd_offset = 4096;
  attributes.iova = std::uint64_t{1} << 40;
  EXPECT_NE(register_by(attributes).get(), nullptr);
  attributes.given = kMrFd | kMrFdOffset;
  EXPECT_EQ(register_by(attributes).get(), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(NewerVerbs, RefuseWhatAStructureMustNotRequest) {
  MrInitAttr unknown = by_address();
  unknown.given |= 1 << 6;
  EXPECT_EQ(register_by(unknown).get(), nullptr);
  EXPECT_EQ(errno, EINVAL);

  MrInitAttr hints = by_address();
  hints.given |= kMrDmaHandle;
  EXPECT_EQ(register_by(hints).get(), nullptr);
  EXPECT_EQ(errno, EOPNOTSUPP);

  MrInitAttr nothing = by_address();
  nothing.given = 0;
  EXPECT_EQ(register_by(nothing).get(), nullptr);
  EXPECT_EQ(errno, EINVAL);

  int other = 0;
  MrInitAttr no_buffer = by_address();
  no_buffer.given |= kMrBuffer;
  no_buffer.buffer = reinterpret_cast<ibv_buf*>(&other);
  EXPECT_EQ(register_by(no_buffer).get(), nullptr);
  EXPECT_EQ(errno, EINVAL);
}

TEST_F(NewerVerbs, BuffersAreAllocatedAndRegisteredInPart) {
  Buffer* buffer = nullptr;
  auto* const data = static_cast<std::byte*>(alloc_buf(node.pd.get(), 5000, &buffer));
  ASSERT_NE(data, nullptr);
  EXPECT_EQ(reinterpret_cast<std::uintptr_t>(data) % 4096, 0U);
  EXPECT_TRUE(is_buffer(buffer));
  const auto registers = [&](std::size_t offset, std::size_t length) {
    return verbs::MrHandle(api(), reg_buf_mr(node.pd.get(), buffer, data + offset, length, IBV_ACCESS_LOCAL_WRITE))
               .get() != nullptr;
  };
  EXPECT_TRUE(registers(0, 5000));
  EXPECT_TRUE(registers(4096, 904));
  EXPECT_FALSE(registers(4096, 905));
  EXPECT_FALSE(registers(-1, 10));
  EXPECT_FALSE(registers(5001, 0));

  Node other;
  EXPECT_EQ(reg_buf_mr(other.pd.get(), buffer, data, 10, IBV_ACCESS_LOCAL_WRITE), nullptr);
  EXPECT_EQ(errno, EINVAL);
  free_buf(buffer);
  EXPECT_FALSE(is_buffer(buffer));
  EXPECT_FALSE(is_buffer(nullptr));
}

TEST_F(NewerVerbs, TheSpeedOfThePortIsThatOfItsAttributes) {
  std::uint64_t speed = 0;
  EXPECT_EQ(query_port_speed(node.context.get(), 1, &speed), 0);
  ibv_port_attr attributes{};
  ASSERT_EQ(api().query_port(node.context.get(), 1, &attributes), 0);
  EXPECT_EQ(attributes.active_width, 2);   // 4 lanes
  EXPECT_EQ(attributes.active_speed, 64);  // 50 Gbit/s each
  EXPECT_EQ(speed, 4U * 500U);
  EXPECT_EQ(query_port_speed(node.context.get(), 2, &speed), EINVAL);
}

}  // namespace
}  // namespace rdmacomm::softdev::test
