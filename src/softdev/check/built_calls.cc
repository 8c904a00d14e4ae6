// The calls behind ibv_wr_*, in the place of those of the device. Between ibv_wr_start and ibv_wr_complete, a queue pair
// belongs to one thread.
#include <cerrno>
#include <utility>

#include "softdev/check/posting.h"
#include "softdev/check/tables.h"

namespace rdmacomm::softdev::check {
namespace {

Qp& qp_of(ibv_qp_ex* calls) {
  const Locked locked;
  return *objects().find_as<Qp>(&calls->qp_base);
}

/// Notes a request, and calls the device's function with a wr_id of the checker.
template <typename Function, typename... Arguments>
void build(Function* ibv_qp_ex::*member, ibv_send_wr wr, ibv_qp_ex* calls, Arguments... arguments) {
  Qp& qp = qp_of(calls);
  Built built;
  built.wr = wr;
  built.wr.wr_id = calls->wr_id;
  built.wr.send_flags = calls->wr_flags & ~static_cast<unsigned>(IBV_SEND_INLINE);
  {
    const Locked locked;
    built.id = requests().draw_id();
  }
  const std::uint64_t wr_id = std::exchange(calls->wr_id, built.id);
  qp.built.push_back(std::move(built));
  ((*qp.calls).*member)(calls, arguments...);
  calls->wr_id = wr_id;
}

ibv_send_wr of(ibv_wr_opcode opcode) {
  ibv_send_wr wr{};
  wr.opcode = opcode;
  return wr;
}
ibv_send_wr of(ibv_wr_opcode opcode, std::uint32_t key, std::uint64_t address) {
  ibv_send_wr wr = of(opcode);
  wr.wr.rdma = {address, key};
  return wr;
}
ibv_send_wr of_atomic(ibv_wr_opcode opcode, std::uint32_t key, std::uint64_t address) {
  ibv_send_wr wr = of(opcode);
  wr.wr.atomic.remote_addr = address;
  wr.wr.atomic.rkey = key;
  return wr;
}

void compare_swap(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint64_t compare, std::uint64_t swap) {
  build(&ibv_qp_ex::wr_atomic_cmp_swp, of_atomic(IBV_WR_ATOMIC_CMP_AND_SWP, key, address), qp, key, address, compare,
        swap);
}
void fetch_add(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, std::uint64_t addend) {
  build(&ibv_qp_ex::wr_atomic_fetch_add, of_atomic(IBV_WR_ATOMIC_FETCH_AND_ADD, key, address), qp, key, address,
        addend);
}
void bind_window(ibv_qp_ex* qp, ibv_mw* mw, std::uint32_t key, const ibv_mw_bind_info* info) {
  build(&ibv_qp_ex::wr_bind_mw, of(IBV_WR_BIND_MW), qp, mw, key, info);
}
void local_invalidate(ibv_qp_ex* qp, std::uint32_t key) {
  build(&ibv_qp_ex::wr_local_inv, of(IBV_WR_LOCAL_INV), qp, key);
}
void rdma_read(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address) {
  build(&ibv_qp_ex::wr_rdma_read, of(IBV_WR_RDMA_READ, key, address), qp, key, address);
}
void rdma_write(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address) {
  build(&ibv_qp_ex::wr_rdma_write, of(IBV_WR_RDMA_WRITE, key, address), qp, key, address);
}
void rdma_write_immediate(ibv_qp_ex* qp, std::uint32_t key, std::uint64_t address, __be32 immediate) {
  build(&ibv_qp_ex::wr_rdma_write_imm, of(IBV_WR_RDMA_WRITE_WITH_IMM, key, address), qp, key, address, immediate);
}
void send(ibv_qp_ex* qp) {
  build(&ibv_qp_ex::wr_send, of(IBV_WR_SEND), qp);
}
void send_immediate(ibv_qp_ex* qp, __be32 immediate) {
  build(&ibv_qp_ex::wr_send_imm, of(IBV_WR_SEND_WITH_IMM), qp, immediate);
}
void send_invalidate(ibv_qp_ex* qp, std::uint32_t key) {
  build(&ibv_qp_ex::wr_send_inv, of(IBV_WR_SEND_WITH_INV), qp, key);
}

void set_slice(ibv_qp_ex* calls, std::uint32_t key, std::uint64_t address, std::uint32_t length) {
  Qp& qp = qp_of(calls);
  if (!qp.built.empty()) qp.built.back().slices = {{address, length, key}};
  qp.calls->wr_set_sge(calls, key, address, length);
}
void set_slices(ibv_qp_ex* calls, std::size_t count, const ibv_sge* slices) {
  Qp& qp = qp_of(calls);
  if (!qp.built.empty()) qp.built.back().slices.assign(slices, slices + count);
  qp.calls->wr_set_sge_list(calls, count, slices);
}
void note_inline(Qp& qp, std::size_t bytes) {
  if (qp.built.empty()) return;
  qp.built.back().wr.send_flags |= IBV_SEND_INLINE;
  qp.built.back().inline_bytes = bytes;
}
void set_inline(ibv_qp_ex* calls, void* address, std::size_t length) {
  Qp& qp = qp_of(calls);
  note_inline(qp, length);
  qp.calls->wr_set_inline_data(calls, address, length);
}
void set_inline_list(ibv_qp_ex* calls, std::size_t count, const ibv_data_buf* pieces) {
  Qp& qp = qp_of(calls);
  std::size_t bytes = 0;
  for (std::size_t i = 0; i < count; ++i) bytes += pieces[i].length;
  note_inline(qp, bytes);
  qp.calls->wr_set_inline_data_list(calls, count, pieces);
}

void start(ibv_qp_ex* calls) {
  Qp& qp = qp_of(calls);
  qp.calls->wr_start(calls);
  qp.built.clear();
}

int finish(ibv_qp_ex* calls) {
  const StackId stack = capture_stack();
  Qp& qp = qp_of(calls);
  const std::scoped_lock order(qp.sending);
  std::vector<Request*> records;
  {
    const Locked locked;
    check_state(qp, false, stack);
    for (Built& built : qp.built) {
      built.wr.sg_list = built.slices.data();
      built.wr.num_sge = static_cast<int>(built.slices.size());
      Posting posting = posting_of(qp, built.wr, stack);
      posting.request->id = built.id;
      posting.request->inline_bytes = built.inline_bytes;
      records.push_back(&admit(std::move(posting)));
    }
  }
  qp.built.clear();
  for (Request* const record : records) remember_contents(*record);
  const int error = qp.calls->wr_complete(calls);
  if (error == 0) return 0;
  const int kept = errno;
  const Locked locked;
  for (Request* const record : records) requests().remove(*record);
  errno = kept;
  return error;
}

void abandon(ibv_qp_ex* calls) {
  Qp& qp = qp_of(calls);
  qp.built.clear();
  qp.calls->wr_abort(calls);
}

template <typename Function>
void replace(Function*& place, Function* function) {
  if (place != nullptr) place = function;
}

}  // namespace

void replace_functions(Qp& qp, ibv_qp_ex& calls) {
  if (qp.calls != nullptr) return;
  qp.calls = std::make_unique<ibv_qp_ex>(calls);
  replace(calls.wr_atomic_cmp_swp, compare_swap);
  replace(calls.wr_atomic_fetch_add, fetch_add);
  replace(calls.wr_bind_mw, bind_window);
  replace(calls.wr_local_inv, local_invalidate);
  replace(calls.wr_rdma_read, rdma_read);
  replace(calls.wr_rdma_write, rdma_write);
  replace(calls.wr_rdma_write_imm, rdma_write_immediate);
  replace(calls.wr_send, send);
  replace(calls.wr_send_imm, send_immediate);
  replace(calls.wr_send_inv, send_invalidate);
  replace(calls.wr_set_sge, set_slice);
  replace(calls.wr_set_sge_list, set_slices);
  replace(calls.wr_set_inline_data, set_inline);
  replace(calls.wr_set_inline_data_list, set_inline_list);
  replace(calls.wr_start, start);
  replace(calls.wr_complete, finish);
  replace(calls.wr_abort, abandon);
}

}  // namespace rdmacomm::softdev::check
