// logging.h - how the library writes a log line. Private to the library.
#pragma once

#include <array>
#include <cstddef>
#include <ostream>
#include <streambuf>

#include "rdmacomm/log.h"

namespace rdmacomm {

/// The value of RCL_MAX_VLOG_LEVEL; 0 if it is unset or no number. Cost: one load.
[[nodiscard]] int max_vlog_level() noexcept;

/// One log line while it is written. Its destructor passes it to the sink. It allocates nothing, so that a lack of
/// memory can be logged, too; text that exceeds its buffer is cut off.
class LogLine {
 public:
  LogLine(LogSeverity severity, const char* file, int line) noexcept
      : severity_(severity), file_(file), line_(line), stream_(&buffer_) {}
  LogLine(const LogLine&) = delete;
  LogLine& operator=(const LogLine&) = delete;
  ~LogLine();

  [[nodiscard]] std::ostream& stream() noexcept { return stream_; }

 private:
  class Buffer final : public std::streambuf {
   public:
    Buffer() { setp(text_.data(), text_.data() + text_.size()); }
    [[nodiscard]] std::string_view text() const { return {pbase(), static_cast<std::size_t>(pptr() - pbase())}; }

   private:
    std::array<char, 16384> text_;  // initialized only as far as used
  };

  const LogSeverity severity_;
  const char* const file_;
  const int line_;
  Buffer buffer_;
  std::ostream stream_;
};

namespace detail {
// The values that the argument of RDMACOMM_LOG selects.
inline constexpr LogSeverity kSeverity_INFO = LogSeverity::kInfo;
inline constexpr LogSeverity kSeverity_WARNING = LogSeverity::kWarning;
inline constexpr LogSeverity kSeverity_ERROR = LogSeverity::kError;
/// Makes RDMACOMM_VLOG an expression without a value: & has a lower precedence than <<, so it is applied last.
struct Voidify {
  void operator&(const std::ostream&) const noexcept {}
};
}  // namespace detail

}  // namespace rdmacomm

/// RDMACOMM_LOG(WARNING) << "what"; severities are INFO, WARNING and ERROR.
#define RDMACOMM_LOG(severity) \
  ::rdmacomm::LogLine(::rdmacomm::detail::kSeverity_##severity, __FILE__, __LINE__).stream()
/// Logs at INFO if RCL_MAX_VLOG_LEVEL is at least `level`. Otherwise the operands of << are not evaluated.
#define RDMACOMM_VLOG(level) \
  ::rdmacomm::max_vlog_level() < (level) ? (void)0 : ::rdmacomm::detail::Voidify() & RDMACOMM_LOG(INFO)
