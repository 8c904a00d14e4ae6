#include "softdev/queues/request_builder.h"

#include <cerrno>

#include "softdev/common/newer_numbers.h"
#include "softdev/memory/requests.h"
#include "softdev/queues/soft_qp.h"

namespace rdmacomm::softdev {
namespace {

RequestBuilder& builder_of(ibv_qp_ex* qp) {
  return static_cast<SoftQp*>(qp)->builder();
}

ibv_send_wr& add(ibv_qp_ex* qp, std::uint64_t operation, ibv_wr_opcode opcode) {
  return builder_of(qp).add(*qp, operation, opcode);
}

ibv_send_wr& add_rdma(ibv_qp_ex* qp, std::uint64_t operation, ibv_wr_opcode opcode, std::uint32_t key,
                      std::uint64_t address) {
  ibv_send_wr& wr = add(qp, operation, opcode);
  wr.wr.rdma.remote_addr = address;
  wr.wr.rdma.rkey = key;
  return wr;
}

void add_atomic(ibv_qp_ex* qp, std::uint64_t operation, ibv_wr_opcode opcode, std::uint32_t key, std::uint64_t address,
                std::uint64_t compare_add, std::uint64_t swap) {
  add(qp, operation, opcode).wr.atomic = {address, compare_add, swap, key};
}

// ---- One function for each pointer of ibv_qp_ex

void compare_swap(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint64_t compare, std::uint64_t swap) {
  add_atomic(qp, IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP, IBV_WR_ATOMIC_CMP_AND_SWP, key, address, compare, swap);
}
void fetch_add(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint64_t addend) {
  add_atomic(qp, IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD, IBV_WR_ATOMIC_FETCH_AND_ADD, key, address, addend, 0);
}
void rdma_read(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address) {
  add_rdma(qp, IBV_QP_EX_WITH_RDMA_READ, IBV_WR_RDMA_READ, key, address);
}
void rdma_write(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address) {
  add_rdma(qp, IBV_QP_EX_WITH_RDMA_WRITE, IBV_WR_RDMA_WRITE, key, address);
}
void rdma_write_imm(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, __be32 immediate) {
  add_rdma(qp, IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM, IBV_WR_RDMA_WRITE_WITH_IMM, key, address).imm_data = immediate;
}
void send(ibv_qp_ex* qp) {
  add(qp, IBV_QP_EX_WITH_SEND, IBV_WR_SEND);
}
void send_imm(ibv_qp_ex* qp, __be32 immediate) {
  add(qp, IBV_QP_EX_WITH_SEND_WITH_IMM, IBV_WR_SEND_WITH_IMM).imm_data = immediate;
}

void set_ud_address(ibv_qp_ex* qp, ibv_ah* address, std::uint32_t qpn, std::uint32_t qkey) {
  builder_of(qp).set_address(address, qpn, qkey);
}

void set_xrc_srqn(ibv_qp_ex* qp, std::uint32_t number) {
  if (qp->qp_base.qp_type != IBV_QPT_XRC_SEND) return builder_of(qp).refuse(EINVAL);
  builder_of(qp).set_xrc_queue(number);
}

void atomic_write(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, const void* value) {
  add_rdma(qp, kWithAtomicWrite, kWrAtomicWrite, key, address);
  const ibv_data_buf word{const_cast<void*>(value), sizeof(std::uint64_t)};
  builder_of(qp).set_inline({&word, 1});
}
void flush(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::size_t length, std::uint8_t type,
           std::uint8_t level) {
  const FlushRequest request{address, length, key, type, level};
  request.put(add(qp, kWithFlush, kWrFlush));
}

void bind_mw(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t key, const ibv_mw_bind_info* info) {
  add(qp, IBV_QP_EX_WITH_BIND_MW, IBV_WR_BIND_MW).bind_mw = {mw, key, *info};
}
void local_invalidate(ibv_qp_ex* qp, std::uint32_t key) {
  add(qp, IBV_QP_EX_WITH_LOCAL_INV, IBV_WR_LOCAL_INV).invalidate_rkey = key;
}
void send_invalidate(ibv_qp_ex* qp, std::uint32_t key) {
  add(qp, IBV_QP_EX_WITH_SEND_WITH_INV, IBV_WR_SEND_WITH_INV).invalidate_rkey = key;
}

/// Not supported by this device.
void send_tso(ibv_qp_ex* qp, void* /*header*/, std::uint16_t /*bytes*/, std::uint16_t /*mss*/) {
  builder_of(qp).refuse(EOPNOTSUPP);
}

void set_inline_data(ibv_qp_ex* qp, void* address, std::size_t length) {
  const ibv_data_buf piece{address, length};
  builder_of(qp).set_inline({&piece, 1});
}
void set_inline_data_list(ibv_qp_ex* qp, std::size_t count, const ibv_data_buf* pieces) {
  builder_of(qp).set_inline({pieces, count});
}
void set_sge(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint32_t length) {
  const ibv_sge slice{address, length, key};
  builder_of(qp).set_slices({&slice, 1});
}
void set_sge_list(ibv_qp_ex* qp, std::size_t count, const ibv_sge* slices) {
  builder_of(qp).set_slices({slices, count});
}

void begin(ibv_qp_ex* qp) {
  builder_of(qp).start();
}
int complete(ibv_qp_ex* qp) {
  RequestBuilder& builder = builder_of(qp);
  int error = 0;
  const std::span<ibv_send_wr> requests = builder.take(error);
  if (error == 0) error = static_cast<SoftQp*>(qp)->post_all(requests);
  builder.finish();
  return error;
}
void abandon(ibv_qp_ex* qp) {
  builder_of(qp).finish();
}

}  // namespace

std::uint64_t RequestBuilder::operations_of(ibv_qp_type type) noexcept {
  constexpr std::uint64_t kSends = IBV_QP_EX_WITH_SEND | IBV_QP_EX_WITH_SEND_WITH_IMM;
  constexpr std::uint64_t kWrites = IBV_QP_EX_WITH_RDMA_WRITE | IBV_QP_EX_WITH_RDMA_WRITE_WITH_IMM;
  constexpr std::uint64_t kReads =
      IBV_QP_EX_WITH_RDMA_READ | IBV_QP_EX_WITH_ATOMIC_CMP_AND_SWP | IBV_QP_EX_WITH_ATOMIC_FETCH_AND_ADD;
  constexpr std::uint64_t kOfWindows = IBV_QP_EX_WITH_BIND_MW | IBV_QP_EX_WITH_LOCAL_INV | IBV_QP_EX_WITH_SEND_WITH_INV;
  if (type == IBV_QPT_UD) return kSends;
  const std::uint64_t unreliable = kSends | kWrites | kOfWindows;
  if (type == IBV_QPT_RC) return unreliable | kReads | kWithFlush | kWithAtomicWrite;
  return type == IBV_QPT_UC ? unreliable : unreliable | kReads;
}

void RequestBuilder::install(QpEx& qp) noexcept {
  qp.wr_atomic_cmp_swp = compare_swap;
  qp.wr_atomic_fetch_add = fetch_add;
  qp.wr_bind_mw = bind_mw;
  qp.wr_local_inv = local_invalidate;
  qp.wr_rdma_read = rdma_read;
  qp.wr_rdma_write = rdma_write;
  qp.wr_rdma_write_imm = rdma_write_imm;
  qp.wr_send = send;
  qp.wr_send_imm = send_imm;
  qp.wr_send_inv = send_invalidate;
  qp.wr_send_tso = send_tso;
  qp.wr_set_ud_addr = set_ud_address;
  qp.wr_set_xrc_srqn = set_xrc_srqn;
  qp.wr_set_inline_data = set_inline_data;
  qp.wr_set_inline_data_list = set_inline_data_list;
  qp.wr_set_sge = set_sge;
  qp.wr_set_sge_list = set_sge_list;
  qp.wr_start = begin;
  qp.wr_complete = complete;
  qp.wr_abort = abandon;
  qp.set_atomic_write(atomic_write);
  qp.set_flush(flush);
}

void RequestBuilder::start() {
  mutex_.lock();
}

ibv_send_wr& RequestBuilder::add(const ibv_qp_ex& qp, std::uint64_t operation, ibv_wr_opcode opcode) {
  if ((operations_ & operation) == 0) refuse(EOPNOTSUPP);
  ranges_.push_back({slices_.size(), 0, false});
  ibv_send_wr& wr = requests_.emplace_back();
  wr.wr_id = qp.wr_id;
  wr.send_flags = qp.wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);  // only set_inline() sets this flag
  wr.opcode = opcode;
  return wr;
}

void RequestBuilder::set_address(ibv_ah* address, std::uint32_t qpn, std::uint32_t qkey) {
  if (ranges_.empty()) return refuse(EINVAL);
  requests_.back().wr.ud = {address, qpn, qkey};
}

void RequestBuilder::set_xrc_queue(std::uint32_t number) {
  if (ranges_.empty()) return refuse(EINVAL);
  requests_.back().qp_type.xrc.remote_srqn = number;
}

void RequestBuilder::set_slices(std::span<const ibv_sge> slices) {
  if (ranges_.empty()) return refuse(EINVAL);
  ranges_.back() = {slices_.size(), slices.size(), false};
  slices_.insert(slices_.end(), slices.begin(), slices.end());
}

void RequestBuilder::set_inline(std::span<const ibv_data_buf> pieces) {
  if (ranges_.empty()) return refuse(EINVAL);
  const std::size_t before = inline_bytes_.size();
  for (const ibv_data_buf& piece : pieces) {
    const auto* const from = static_cast<const std::byte*>(piece.addr);
    inline_bytes_.insert(inline_bytes_.end(), from, from + piece.length);
  }
  // One slice for the copy. take() completes its address, because inline_bytes_ may still grow.
  ranges_.back() = {slices_.size(), 1, true};
  slices_.push_back({before, static_cast<std::uint32_t>(inline_bytes_.size() - before), 0});
  requests_.back().send_flags |= IBV_SEND_INLINE;
}

std::span<ibv_send_wr> RequestBuilder::take(int& error) {
  error = error_;
  for (std::size_t i = 0; i < requests_.size(); ++i) {
    const Range& range = ranges_[i];
    ibv_sge* const first = slices_.data() + range.first;
    if (range.inlined) first->addr += reinterpret_cast<std::uint64_t>(inline_bytes_.data());
    requests_[i].sg_list = first;
    requests_[i].num_sge = static_cast<int>(range.count);
  }
  return requests_;
}

void RequestBuilder::finish() {
  error_ = 0;
  requests_.clear();
  ranges_.clear();
  slices_.clear();
  inline_bytes_.clear();
  mutex_.unlock();
}

}  // namespace rdmacomm::softdev
