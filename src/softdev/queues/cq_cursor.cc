#include "softdev/queues/cq_cursor.h"

#include <cerrno>

#include "softdev/common/device_clock.h"
#include "softdev/queues/soft_cq.h"

namespace rdmacomm::softdev {
namespace {

CqCursor& cursor_of(ibv_cq_ex* cq) {
  return static_cast<SoftCq*>(cq)->cursor();
}
const ibv_wc& wc_of(ibv_cq_ex* cq) {
  return cursor_of(cq).at();
}

// ---- One function for each pointer of ibv_cq_ex

int start_poll(ibv_cq_ex* cq, ibv_poll_cq_attr* attributes) {
  if (attributes != nullptr && attributes->comp_mask != 0) return EINVAL;
  return cursor_of(cq).start(*cq);
}
int next_poll(ibv_cq_ex* cq) {
  return cursor_of(cq).next(*cq);
}
void end_poll(ibv_cq_ex* cq) {
  cursor_of(cq).end();
}
ibv_wc_opcode read_opcode(ibv_cq_ex* cq) {
  return wc_of(cq).opcode;
}
std::uint32_t read_vendor_error(ibv_cq_ex* cq) {
  return wc_of(cq).vendor_err;
}
unsigned read_flags(ibv_cq_ex* cq) {
  return wc_of(cq).wc_flags;
}
std::uint32_t read_byte_length(ibv_cq_ex* cq) {
  return wc_of(cq).byte_len;
}
__be32 read_immediate(ibv_cq_ex* cq) {
  return wc_of(cq).imm_data;
}
std::uint32_t read_qp_number(ibv_cq_ex* cq) {
  return wc_of(cq).qp_num;
}
std::uint32_t read_source_qp(ibv_cq_ex* cq) {
  return wc_of(cq).src_qp;
}
std::uint32_t read_source_lid(ibv_cq_ex* cq) {
  return wc_of(cq).slid;
}
std::uint8_t read_service_level(ibv_cq_ex* cq) {
  return wc_of(cq).sl;
}
std::uint8_t read_path_bits(ibv_cq_ex* cq) {
  return wc_of(cq).dlid_path_bits;
}
std::uint64_t read_ticks(ibv_cq_ex* cq) {
  return cursor_of(cq).ticks();
}
std::uint64_t read_wall_nanoseconds(ibv_cq_ex* cq) {
  return cursor_of(cq).wall_nanoseconds();
}

}  // namespace

void CqCursor::install(ibv_cq_ex& cq, std::uint64_t fields) noexcept {
  times_ = fields & kTimes;
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP) != 0) cq.read_completion_ts = read_ticks;
  if ((fields & IBV_WC_EX_WITH_COMPLETION_TIMESTAMP_WALLCLOCK) != 0)
    cq.read_completion_wallclock_ns = read_wall_nanoseconds;
  cq.start_poll = start_poll;
  cq.next_poll = next_poll;
  cq.end_poll = end_poll;
  cq.read_opcode = read_opcode;
  cq.read_vendor_err = read_vendor_error;
  cq.read_wc_flags = read_flags;
  if ((fields & IBV_WC_EX_WITH_BYTE_LEN) != 0) cq.read_byte_len = read_byte_length;
  if ((fields & IBV_WC_EX_WITH_IMM) != 0) cq.read_imm_data = read_immediate;
  if ((fields & IBV_WC_EX_WITH_QP_NUM) != 0) cq.read_qp_num = read_qp_number;
  if ((fields & IBV_WC_EX_WITH_SRC_QP) != 0) cq.read_src_qp = read_source_qp;
  if ((fields & IBV_WC_EX_WITH_SLID) != 0) cq.read_slid = read_source_lid;
  if ((fields & IBV_WC_EX_WITH_SL) != 0) cq.read_sl = read_service_level;
  if ((fields & IBV_WC_EX_WITH_DLID_PATH_BITS) != 0) cq.read_dlid_path_bits = read_path_bits;
}

int CqCursor::start(ibv_cq_ex& cq) {
  mutex_.lock();
  const int error = next(cq);
  if (error != 0) mutex_.unlock();  // after a start without result, the caller does not call ibv_end_poll
  return error;
}

int CqCursor::next(ibv_cq_ex& cq) {
  const int found = static_cast<SoftCq&>(cq).poll(1, &wc_);
  if (found <= 0) return found == 0 ? ENOENT : EIO;
  if (times_ != 0) {
    ticks_ = device_ticks();
    wall_nanoseconds_ = softdev::wall_nanoseconds();
  }
  cq.status = wc_.status;
  cq.wr_id = wc_.wr_id;
  return 0;
}

}  // namespace rdmacomm::softdev
