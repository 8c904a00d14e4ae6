// request_builder.h - builds requests with the ibv_wr_* calls.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

#include "softdev/common/qp_ex.h"

namespace rdmacomm::softdev {

/// Collects requests from ibv_wr_start to ibv_wr_complete, which posts all of them or none. It follows ibv_wr_post(3):
/// ibv_wr_complete reports an error in any of the requests, each call copies its inline data at once, and one thread
/// owns the queue pair from start to complete or abort.
class RequestBuilder {
 public:
  /// The operations that can be requested (IBV_QP_EX_WITH_*) for a queue pair of this type.
  [[nodiscard]] static std::uint64_t operations_of(ibv_qp_type type) noexcept;

  /// operations  requested at the creation of the queue pair; others are refused
  explicit RequestBuilder(std::uint64_t operations) : operations_(operations) {}
  RequestBuilder(const RequestBuilder&) = delete;
  RequestBuilder& operator=(const RequestBuilder&) = delete;

  /// Sets all function pointers of a queue pair that has a builder.
  static void install(QpEx& qp) noexcept;

  void start();
  /// Begins a request with the queue pair's wr_id and wr_flags.
  ibv_send_wr& add(const ibv_qp_ex& qp, std::uint64_t operation, ibv_wr_opcode opcode);
  void set_address(ibv_ah* address, std::uint32_t qpn, std::uint32_t qkey);
  void set_xrc_queue(std::uint32_t number);
  void set_slices(std::span<const ibv_sge> slices);
  void set_inline(std::span<const ibv_data_buf> pieces);
  /// Records an error. ibv_wr_complete returns the first one.
  void refuse(int error) noexcept {
    if (error_ == 0) error_ = error;
  }
  /// The requests with their slices, ready to post; valid until finish().
  /// error  0, or the reason why they cannot be posted
  [[nodiscard]] std::span<ibv_send_wr> take(int& error);
  void finish();

 private:
  /// The part of slices_ that belongs to a request.
  struct Range {
    std::size_t first;
    std::size_t count;
    bool inlined;
  };

  std::mutex mutex_;  // held from start() to finish()
  const std::uint64_t operations_;
  int error_ = 0;
  std::vector<ibv_send_wr> requests_;
  std::vector<Range> ranges_;
  std::vector<ibv_sge> slices_;
  std::vector<std::byte> inline_bytes_;
};

}  // namespace rdmacomm::softdev
