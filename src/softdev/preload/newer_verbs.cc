// The verbs that libibverbs has had only since some release after 33. This library has them in front of any release. So
// their structures are declared here, because <infiniband/verbs.h> may be of an older release.
#include "softdev/verbs/newer_verbs.h"

#include <infiniband/verbs.h>

#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "softdev/preload/next.h"
#include "softdev/preload/whose.h"
#include "softdev/verbs/soft_verbs.h"

struct ibv_buf;
struct ibv_comp_cntr;
struct ibv_comp_cntr_caps;
struct ibv_comp_cntr_init_attr;
struct ibv_dmah;
struct ibv_dmah_init_attr;
struct ibv_mr_init_attr;
struct ibv_qp_attach_comp_cntr_attr;

namespace {

namespace softdev = rdmacomm::softdev;

using softdev::preload::refuse;
using softdev::preload::soft;

bool of_soft0(const ibv_buf* buffer) noexcept {
  return softdev::is_buffer(reinterpret_cast<const softdev::Buffer*>(buffer));
}
softdev::Buffer* own(ibv_buf* buffer) noexcept {
  return reinterpret_cast<softdev::Buffer*>(buffer);
}

ibv_mr* register_by(ibv_pd* pd, const ibv_mr_init_attr* attributes) {
  return softdev::reg_mr_ex(pd, *reinterpret_cast<const softdev::MrInitAttr*>(attributes));
}

int no_counters(ibv_comp_cntr_caps* capabilities, std::size_t size) {
  std::memset(static_cast<void*>(capabilities), 0, size);
  return EOPNOTSUPP;
}

}  // namespace

extern "C" {

// ---- IBVERBS_1.12 to 1.14

ibv_mr* ibv_reg_dmabuf_mr(ibv_pd* pd, std::uint64_t offset, std::size_t length, std::uint64_t iova, int fd,
                          int access) {
  RDMACOMM_FRONT_NEWER(ibv_reg_dmabuf_mr, soft(pd), softdev::reg_dmabuf_mr(pd, offset, length, iova, fd, access),
                       (pd, offset, length, iova, fd, access), refuse<ibv_mr*>(nullptr));
}
ibv_dm* ibv_import_dm(ibv_context* context, std::uint32_t handle) {
  RDMACOMM_FRONT_NEWER(ibv_import_dm, soft(context), refuse<ibv_dm*>(nullptr), (context, handle),
                       refuse<ibv_dm*>(nullptr));
}
void ibv_unimport_dm(ibv_dm* dm) {
  RDMACOMM_FRONT_NEWER(ibv_unimport_dm, soft(dm), void(), (dm), void());
}
int ibv_query_qp_data_in_order(ibv_qp* qp, ibv_wr_opcode opcode, std::uint32_t flags) {
  // No order of the bytes is guaranteed to programs, although the last bytes of a WRITE are written last (copier.h).
  RDMACOMM_FRONT_NEWER(ibv_query_qp_data_in_order, soft(qp), 0, (qp, opcode, flags), 0);
}

// ---- IBVERBS_1.15: registrations by a structure, and hints for a device's cache (TPH)

ibv_mr* ibv_reg_mr_ex(ibv_pd* pd, ibv_mr_init_attr* attributes) {
  RDMACOMM_FRONT_NEWER(ibv_reg_mr_ex, soft(pd), register_by(pd, attributes), (pd, attributes),
                       refuse<ibv_mr*>(nullptr));
}
ibv_dmah* ibv_alloc_dmah(ibv_context* context, ibv_dmah_init_attr* attributes) {
  RDMACOMM_FRONT_NEWER(ibv_alloc_dmah, soft(context), refuse<ibv_dmah*>(nullptr), (context, attributes),
                       refuse<ibv_dmah*>(nullptr));
}

// ---- IBVERBS_1.16

int ibv_dm_export_dmabuf_fd(ibv_dm* dm) {
  RDMACOMM_FRONT_NEWER(ibv_dm_export_dmabuf_fd, soft(dm), refuse(-1), (dm), refuse(-1));
}
int ibv_query_port_speed(ibv_context* context, std::uint32_t port, std::uint64_t* speed) {
  RDMACOMM_FRONT_NEWER(ibv_query_port_speed, soft(context), softdev::query_port_speed(context, port, speed),
                       (context, port, speed), EOPNOTSUPP);
}

// ---- IBVERBS_1.17 and 1.18: buffers that the device allocates

void* ibv_alloc_buf(ibv_pd* pd, std::size_t size, ibv_buf** buffer) {
  RDMACOMM_FRONT_NEWER(ibv_alloc_buf, soft(pd),
                       softdev::alloc_buf(pd, size, reinterpret_cast<softdev::Buffer**>(buffer)), (pd, size, buffer),
                       refuse<void*>(nullptr));
}
void ibv_free_buf(ibv_buf* buffer) {
  RDMACOMM_FRONT_NEWER(ibv_free_buf, of_soft0(buffer), softdev::free_buf(own(buffer)), (buffer), void());
}
ibv_mr* ibv_reg_buf_mr(ibv_pd* pd, ibv_buf* buffer, void* address, std::size_t length, int access) {
  RDMACOMM_FRONT_NEWER(ibv_reg_buf_mr, soft(pd), softdev::reg_buf_mr(pd, own(buffer), address, length, access),
                       (pd, buffer, address, length, access), refuse<ibv_mr*>(nullptr));
}
int ibv_export_buf_dmabuf_fd(ibv_buf* buffer) {
  RDMACOMM_FRONT_NEWER(ibv_export_buf_dmabuf_fd, of_soft0(buffer), refuse(-1, ENODATA), (buffer), refuse(-1));
}

// ---- IBVERBS_1.18: counters of completions. soft0 has none, so no call gets a counter of soft0.

int _ibv_query_comp_cntr_caps(ibv_context* context, ibv_comp_cntr_caps* capabilities, std::size_t size) {
  RDMACOMM_FRONT_NEWER(_ibv_query_comp_cntr_caps, soft(context), no_counters(capabilities, size),
                       (context, capabilities, size), no_counters(capabilities, size));
}
ibv_comp_cntr* ibv_create_comp_cntr(ibv_context* context, ibv_comp_cntr_init_attr* attributes) {
  RDMACOMM_FRONT_NEWER(ibv_create_comp_cntr, soft(context), refuse<ibv_comp_cntr*>(nullptr), (context, attributes),
                       refuse<ibv_comp_cntr*>(nullptr));
}
int ibv_qp_attach_comp_cntr(ibv_qp* qp, ibv_comp_cntr* counter, ibv_qp_attach_comp_cntr_attr* attributes) {
  RDMACOMM_FRONT_NEWER(ibv_qp_attach_comp_cntr, soft(qp), EOPNOTSUPP, (qp, counter, attributes), EOPNOTSUPP);
}
}
