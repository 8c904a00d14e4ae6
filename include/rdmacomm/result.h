// result.h - how calls report errors: Outcome on the hot path, Status and Result<T> everywhere else.
// Layer: base.   For all three, `true` and ok() mean success.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <system_error>
#include <utility>
#include <variant>

#include "rdmacomm/errc.h"

namespace rdmacomm {

/// A failure: a code to branch on and a sentence to show. A value.
///
/// `context` says what failed, with which values, the likely cause and the next thing to do.
struct RDMACOMM_API Error {
  std::error_code code;  ///< an Errc, or the system's error in std::generic_category()
  std::string context;   ///< a sentence without the text of the code; may be empty

  /// One line for people: the context, followed by the text of the code, unless the context ends with it already.
  [[nodiscard]] std::string message() const {
    const std::string words = code.message();
    if (context.empty()) return words;
    return context.ends_with(words) ? context : context + " (" + words + ")";
  }
  /// The context alone; the text of the code if the context is empty.
  [[nodiscard]] std::string reason() const { return context.empty() ? code.message() : context; }
};

/// Makes an Error from an Errc (or a std::errc) and its context.
[[nodiscard]] inline Error make_error(std::error_code code, std::string context) {
  return Error{code, std::move(context)};
}

namespace detail {
/// Called when a program asks a Result or Status for a value or an error that it does not have, which is a bug in that
/// program. Logs it, with the failure if any, and ends the program by abort().
[[noreturn]] RDMACOMM_API void die_of_misuse(const char* what, const Error* failure) noexcept;
}  // namespace detail

/// Success, or a code without a text. Returned by calls that are made for each message. A value of 8 bytes; creating
/// and copying it needs no function call. It converts to a Status.
class [[nodiscard]] RDMACOMM_API Outcome {
 public:
  constexpr Outcome() noexcept = default;  ///< success
  /// The failure `code`; success if it is kOk.
  constexpr Outcome(Errc code) noexcept
      : Outcome(Kind::kErrc, static_cast<int>(code)) {}  // NOLINT(google-explicit-constructor)
  /// A failure of the operating system.
  ///
  /// number  an errno, not 0
  [[nodiscard]] static constexpr Outcome of_system(int number) noexcept { return {Kind::kSystem, number}; }

  [[nodiscard]] constexpr bool ok() const noexcept { return number_ == 0; }  ///< whether it is success
  constexpr explicit operator bool() const noexcept { return ok(); }         ///< ok()
  /// The failure's code; on success a std::error_code that is false.
  [[nodiscard]] std::error_code code() const noexcept {
    if (ok()) return {};
    return {number_, kind_ == Kind::kErrc ? errc_category() : std::generic_category()};
  }
  /// The text of the code, or "ok".
  [[nodiscard]] std::string message() const { return ok() ? "ok" : code().message(); }

  /// Whether both are success, or both have the same code. Also compares with an Errc, which converts to an Outcome.
  friend constexpr bool operator==(Outcome, Outcome) noexcept = default;
  /// Whether it is a failure of the operating system with this errno.
  friend bool operator==(Outcome outcome, std::errc condition) noexcept { return outcome.code() == condition; }

 private:
  enum class Kind : std::int32_t { kErrc, kSystem };
  constexpr Outcome(Kind kind, int number) noexcept : number_(number), kind_(kind) {}

  std::int32_t number_ = 0;
  Kind kind_ = Kind::kErrc;
};

/// Success, or an Error. A value; [[nodiscard]], so that no failure is dropped by accident.
class [[nodiscard]] RDMACOMM_API Status {
 public:
  // Not defaulted: `return {};` would then also clear the Error's storage, and a wait returns a Status for each
  // message.
  /// Success.
  Status() noexcept {}  // NOLINT(modernize-use-equals-default)
  /// A failure, whatever the code of `error` is.
  Status(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor): reads as `return error;`
  /// Success, or a failure with the code of `outcome` and an empty context.
  Status(Outcome outcome) {  // NOLINT(google-explicit-constructor): the same
    if (!outcome.ok()) error_ = Error{outcome.code(), {}};
  }

  [[nodiscard]] bool ok() const noexcept { return !error_.has_value(); }  ///< whether it is success
  explicit operator bool() const noexcept { return ok(); }                ///< ok()

  /// The failure. Call it only if !ok(); otherwise the program ends, because the caller has a bug. The reference is
  /// valid while the Status lives.
  [[nodiscard]] const Error& error() const noexcept {
    if (!error_) [[unlikely]]
      detail::die_of_misuse("Status::error() was called, but the status is ok", nullptr);
    return *error_;
  }
  /// The failure's code; on success a std::error_code that is false.
  [[nodiscard]] std::error_code code() const noexcept { return ok() ? std::error_code() : error_->code; }
  /// The failure's message for people, or "ok".
  [[nodiscard]] std::string message() const { return ok() ? "ok" : error_->message(); }

 private:
  std::optional<Error> error_;
};

/// A T or an Error. The names are those of std::expected<T, Error>. A moved-from Result still has a value or an error,
/// which was moved from.
template <typename T>
class [[nodiscard]] RDMACOMM_API Result {
 public:
  using value_type = T;  ///< T, for generic code

  /// Success with this value.
  Result(T value) : state_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  /// A failure, whatever the code of `error` is.
  Result(Error error) : state_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  [[nodiscard]] bool has_value() const noexcept { return state_.index() == 0; }  ///< whether it is success
  [[nodiscard]] bool ok() const noexcept { return has_value(); }                 ///< has_value()
  explicit operator bool() const noexcept { return has_value(); }                ///< has_value()

  /// The value, which stays in the Result. Only if has_value(); anything else is a bug in the program and ends it.
  [[nodiscard]] T& value() & { return *pointer(); }
  /// The same, to read only.
  [[nodiscard]] const T& value() const& { return *const_cast<Result*>(this)->pointer(); }
  /// The same of a temporary or moved Result, so that the caller can move the value out.
  [[nodiscard]] T&& value() && { return std::move(*pointer()); }
  [[nodiscard]] T& operator*() & { return value(); }                     ///< value()
  [[nodiscard]] const T& operator*() const& { return value(); }          ///< value()
  [[nodiscard]] T&& operator*() && { return std::move(*this).value(); }  ///< value(), to move it out
  /// A member of the value. Only if has_value(), as for value().
  [[nodiscard]] T* operator->() { return pointer(); }
  /// The same, to read only.
  [[nodiscard]] const T* operator->() const { return &value(); }

  /// The failure, which stays in the Result. Only if !has_value(); anything else is a bug in the program and ends it.
  [[nodiscard]] const Error& error() const& noexcept { return *failure(); }
  /// The same of a temporary or moved Result, so that the caller can move the failure out.
  [[nodiscard]] Error&& error() && noexcept { return std::move(*const_cast<Error*>(failure())); }

  /// Success, or the failure without the value.
  [[nodiscard]] Status status() const { return has_value() ? Status() : Status(error()); }
  /// The failure's code; on success a std::error_code that is false.
  [[nodiscard]] std::error_code code() const noexcept { return has_value() ? std::error_code() : error().code; }
  /// The failure's message, or "ok".
  [[nodiscard]] std::string message() const { return has_value() ? "ok" : error().message(); }

 private:
  T* pointer() {
    T* value = std::get_if<0>(&state_);
    if (value == nullptr) [[unlikely]]
      detail::die_of_misuse("Result::value() was called, but the result has an error", std::get_if<1>(&state_));
    return value;
  }
  const Error* failure() const noexcept {
    const Error* error = std::get_if<1>(&state_);
    if (error == nullptr) [[unlikely]]
      detail::die_of_misuse("Result::error() was called, but the result has a value", nullptr);
    return error;
  }

  std::variant<T, Error> state_;
};

}  // namespace rdmacomm
