// request_builder.h - requests put together by the calls ibv_wr_*.
#pragma once

#include <infiniband/verbs.h>

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>
#include <vector>

namespace rdmacomm::softdev {

/// Collects requests from ibv_wr_start to ibv_wr_complete, which posts all of them or none. As ibv_wr_post(3) wants it:
/// what is wrong with any of them is the answer of ibv_wr_complete, inline data is copied by the call that names it, and
/// from start to complete or abort one thread has the queue pair to itself.
class RequestBuilder {
 public:
  /// What can be asked for (IBV_QP_EX_WITH_*) with a queue pair of this type.
  [[nodiscard]] static std::uint64_t operations_of(ibv_qp_type type) noexcept;

  /// operations  what was asked for when the queue pair was created; others are refused
  explicit RequestBuilder(std::uint64_t operations) : operations_(operations) {}
  RequestBuilder(const RequestBuilder&) = delete;
  RequestBuilder& operator=(const RequestBuilder&) = delete;

  /// Sets the function pointers of a queue pair that has a builder; none of them is left out.
  static void install(ibv_qp_ex& qp) noexcept;

  void start();
  /// Begins a request with the queue pair's wr_id and wr_flags.
  ibv_send_wr& add(const ibv_qp_ex& qp, std::uint64_t operation, ibv_wr_opcode opcode);
  void set_address(ibv_ah* address, std::uint32_t qpn, std::uint32_t qkey);
  void set_xrc_queue(std::uint32_t number);
  void set_slices(std::span<const ibv_sge> slices);
  void set_inline(std::span<const ibv_data_buf> pieces);
  /// Something is wrong with the requests: ibv_wr_complete will say the first of it.
  void refuse(int error) noexcept {
    if (error_ == 0) error_ = error;
  }
  /// The requests, with their lists, for posting; valid until finish(). `error`: why they cannot be posted.
  [[nodiscard]] std::span<ibv_send_wr> take(int& error);
  void finish();

 private:
  /// Where a request's slices are in slices_.
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
