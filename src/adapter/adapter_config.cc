#include <algorithm>
#include <array>
#include <string>

#include "base/check_range.h"
#include "rdmacomm/adapter.h"
#include "verbs/describe.h"

namespace rdmacomm {
namespace {

using std::chrono::microseconds;
using std::chrono::nanoseconds;

constexpr int kMaxTimeoutCode = 31;

constexpr nanoseconds timeout_of(int code) {
  return nanoseconds(std::int64_t{4096} << code);
}

// The values of min_rnr_timer in order of duration: code 1 to 31, then 0. Source: ibv_modify_qp(3).
constexpr std::array<microseconds, 32> kRnrSteps = {
    microseconds(10),     microseconds(20),     microseconds(30),     microseconds(40),     microseconds(60),
    microseconds(80),     microseconds(120),    microseconds(160),    microseconds(240),    microseconds(320),
    microseconds(480),    microseconds(640),    microseconds(960),    microseconds(1280),   microseconds(1920),
    microseconds(2560),   microseconds(3840),   microseconds(5120),   microseconds(7680),   microseconds(10240),
    microseconds(15360),  microseconds(20480),  microseconds(30720),  microseconds(40960),  microseconds(61440),
    microseconds(81920),  microseconds(122880), microseconds(163840), microseconds(245760), microseconds(327680),
    microseconds(491520), microseconds(655360)};

/// A field and its bounds. An empty value is valid: it will be filled in.
struct Bound {
  const char* field;
  std::optional<std::int64_t> value;
  Range range;
};

constexpr Range of_device(std::int64_t low, std::int64_t high) {
  return {.low = low, .high = high, .high_of_device = true};
}

// The device does not report its limit on inline data; creating the queue pair finds it.
constexpr int kMaxInlineBytes = 65'535;

constexpr int kUsualDepth = 128;
constexpr int kUsualSlices = 4;
constexpr int kUsualReadDepth = 16;

void fill_in(std::optional<int>& field, int usual, int limit) {
  if (!field) field = std::min(usual, limit);
}

}  // namespace

Status AdapterConfig::validate(const DeviceLimits& limits) const {
  const std::array bounds = {
      Bound{"AdapterConfig::send_depth", send_depth, of_device(1, limits.max_qp_wr)},
      Bound{"AdapterConfig::recv_depth", recv_depth, of_device(1, limits.max_qp_wr)},
      Bound{"AdapterConfig::max_send_slices", max_send_slices, of_device(1, limits.max_sge)},
      Bound{"AdapterConfig::max_recv_slices", max_recv_slices, of_device(1, limits.max_sge)},
      Bound{"AdapterConfig::max_read_slices", max_read_slices, of_device(1, limits.max_sge_rd)},
      Bound{"AdapterConfig::max_inline_bytes", max_inline_bytes, {.low = 0, .high = kMaxInlineBytes}},
      Bound{"AdapterConfig::service_level", service_level, {.low = 0, .high = 15}},
      Bound{"AdapterConfig::service_level", service_level, of_device(0, limits.max_service_level)},
      Bound{"AdapterConfig::hop_limit", hop_limit, {.low = 1, .high = 255}},
      Bound{"AdapterConfig::ack_timeout",
            ack_timeout.count(),
            {.low = 0,
             .high = std::chrono::duration_cast<microseconds>(timeout_of(kMaxTimeoutCode)).count(),
             .unit = " us"}},
      Bound{"AdapterConfig::retry_count", retry_count, {.low = 0, .high = 7}},
      Bound{"AdapterConfig::rnr_retry", rnr_retry, {.low = 0, .high = 7}},
      Bound{"AdapterConfig::min_rnr_timer",
            min_rnr_timer.count(),
            {.low = 0, .high = kRnrSteps.back().count(), .unit = " us"}},
      Bound{"AdapterConfig::max_read_depth", max_read_depth, of_device(0, limits.max_read_depth_initiator)},
      Bound{"AdapterConfig::max_read_depth_responder", max_read_depth_responder, of_device(0, limits.max_read_depth)},
  };
  for (const Bound& bound : bounds) {
    if (!bound.value) continue;
    if (Status status = check_range(bound.field, *bound.value, bound.range); !status) return status;
  }
  if (ibv_mtu mtu{}; !verbs::mtu_from_bytes(mtu_bytes, mtu)) {
    return make_error(Errc::kInvalidArgument, "AdapterConfig::mtu_bytes is " + std::to_string(mtu_bytes) +
                                                  "; it must be 256, 512, 1024, 2048 or 4096");
  }
  const int send_slices = *fitted(limits).max_send_slices;
  if (max_read_slices <= send_slices) return {};
  return make_error(Errc::kInvalidArgument, "AdapterConfig::max_read_slices is " + std::to_string(*max_read_slices) +
                                                ", more than max_send_slices, " + std::to_string(send_slices));
}

AdapterConfig AdapterConfig::fitted(const DeviceLimits& limits) const {
  AdapterConfig fitted = *this;
  fill_in(fitted.send_depth, kUsualDepth, limits.max_qp_wr);
  fill_in(fitted.recv_depth, kUsualDepth, limits.max_qp_wr);
  fill_in(fitted.max_send_slices, kUsualSlices, limits.max_sge);
  fill_in(fitted.max_recv_slices, kUsualSlices, limits.max_sge);
  fill_in(fitted.max_read_slices, *fitted.max_send_slices, limits.max_sge_rd);
  fill_in(fitted.max_read_depth, kUsualReadDepth, limits.max_read_depth_initiator);
  fill_in(fitted.max_read_depth_responder, kUsualReadDepth, limits.max_read_depth);
  return fitted;
}

std::uint8_t AdapterConfig::ack_timeout_code() const noexcept {
  if (ack_timeout <= microseconds(0)) return 0;  // no timeout
  int code = 1;
  while (code < kMaxTimeoutCode && timeout_of(code) < ack_timeout) ++code;
  return static_cast<std::uint8_t>(code);
}

std::uint8_t AdapterConfig::min_rnr_timer_code() const noexcept {
  std::size_t step = 0;
  while (step + 1 < kRnrSteps.size() && kRnrSteps[step] < min_rnr_timer) ++step;
  return static_cast<std::uint8_t>((step + 1) % kRnrSteps.size());
}

}  // namespace rdmacomm
