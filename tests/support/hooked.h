// hooked.h - a session together with the hooks that it calls.
#pragma once

#include <concepts>
#include <memory>
#include <utility>

#include "rdmacomm/session.h"

namespace rdmacomm::testing {

/// `->` returns the session, `hooks` the hooks. Movable; may be empty.
template <typename Session, std::derived_from<SessionHooks> Hooks>
class Hooked {
 public:
  Hooked() = default;
  explicit Hooked(SessionOptions options, std::shared_ptr<Hooks> with = std::make_shared<Hooks>())
      : hooks(std::move(with)), session_(std::make_unique<Session>(std::move(options), hooks)) {}

  explicit operator bool() const noexcept { return session_ != nullptr; }
  [[nodiscard]] const Session* operator->() const noexcept { return session_.get(); }
  // `*server` works as on a pointer. The result can be passed on as a Hooked or as its session.
  [[nodiscard]] Hooked& operator*() noexcept { return *this; }
  [[nodiscard]] const Hooked& operator*() const noexcept { return *this; }
  operator const Session&() const noexcept { return *session_; }  // NOLINT(google-explicit-constructor)
  void reset() { *this = {}; }

  std::shared_ptr<Hooks> hooks;

 private:
  std::unique_ptr<Session> session_;  // destroyed before the hooks
};

}  // namespace rdmacomm::testing
