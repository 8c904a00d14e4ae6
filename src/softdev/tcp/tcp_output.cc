#include "softdev/tcp/tcp_output.h"

namespace rdmacomm::softdev {
namespace {

/// A buffer that has grown beyond this size is shrunk after the message.
constexpr std::size_t kMaxKeptOutput = 4 * 1024 * 1024;

bool is_behind(std::uint32_t count, std::uint32_t other) noexcept {
  return static_cast<std::int32_t>(count - other) < 0;
}

std::span<const std::byte> bytes_of(const TcpAnswer& answer) noexcept {
  return std::as_bytes(std::span(&answer, 1));
}

}  // namespace

std::uint32_t TcpOutput::done_for(std::uint32_t polled) const noexcept {
  const std::uint64_t promise = promise_.load(std::memory_order_acquire);
  const auto promised = static_cast<std::uint32_t>(promise);
  const std::uint32_t known = done();
  const bool kept = promise != 0 && !is_behind(polled, static_cast<std::uint32_t>(promise >> 32));
  return kept && is_behind(known, promised) ? promised : known;
}

void TcpOutput::send_answer(TcpAnswer answer, std::span<const std::byte> bytes) {
  answer.done = done();
  has_reported_ = true;
  if (holds_back()) {
    const bool responds = answer.kind == TcpAnswer::kPayload;
    Response& response =
        responses_.emplace_back(Response{responds ? answer.done - 1 : answer.done, answer.done, {}, {}});
    response.bytes.assign(bytes_of(answer).begin(), bytes_of(answer).end());
    response.bytes.insert(response.bytes.end(), bytes.begin(), bytes.end());
    return;
  }
  note_reported(answer.done);
  append(bytes_of(answer));
  append(bytes);
  end_answer();
}

void TcpOutput::end_answer() {
  ends_.push_back(out_.size());
  ends_with_done_ = false;
}

void TcpOutput::respond(std::span<const std::byte> bytes) {
  one_is_done();
  TcpAnswer answer;
  answer.kind = TcpAnswer::kPayload;
  answer.length = static_cast<std::uint32_t>(bytes.size());
  send_answer(answer, bytes);
}

void TcpOutput::respond_later(const TcpRequest& read) {
  has_reported_ = true;
  responses_.push_back({done(), done() + 1, {}, read});
  one_is_done();
}

void TcpOutput::report_done() {
  if (holds_back() || !owes()) return;
  TcpAnswer answer;
  answer.kind = TcpAnswer::kDone;
  answer.done = done();
  has_reported_ = true;
  note_reported(answer.done);
  // Replaces an unsent kDone at the end.
  if (ends_with_done_ && bytes().size() >= sizeof(answer)) out_.resize(out_.size() - sizeof(answer));
  append(bytes_of(answer));
  ends_with_done_ = true;
}

void TcpOutput::go_first(std::span<const std::byte> bytes) {
  out_.insert(out_.begin(), bytes.begin(), bytes.end());
  for (std::size_t& end : ends_) end += bytes.size();
}

void TcpOutput::sent(std::size_t bytes) noexcept {
  sent_ += bytes;
  while (!ends_.empty() && ends_.front() <= sent_) ends_.pop_front();
  if (sent_ < out_.size() - sent_) return;
  out_.erase(out_.begin(), out_.begin() + static_cast<std::ptrdiff_t>(sent_));
  for (std::size_t& end : ends_) end -= sent_;
  sent_ = 0;
  if (!out_.empty()) return;
  ends_with_done_ = false;
  if (out_.capacity() > kMaxKeptOutput) out_.shrink_to_fit();
}

bool TcpOutput::next_response() {
  if (responses_.empty()) return false;
  const Response& next = responses_.front();
  if (next.read) {
    TcpAnswer answer;
    answer.kind = TcpAnswer::kPayload;
    answer.done = next.done;
    answer.length = next.read->length;
    append(bytes_of(answer));
    reading_.emplace(Reading{*next.read});
  } else {
    append(next.bytes);
  }
  end_answer();
  note_reported(next.done);
  responses_.pop_front();
  return true;
}

}  // namespace rdmacomm::softdev
