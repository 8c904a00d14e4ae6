// environment_variable.h - what an environment variable says for as long as a test wants it to.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace rdmacomm::testing {

/// Sets a variable, or (nullptr) takes it out of the environment; afterwards it is as before.
class EnvironmentVariable {
 public:
  EnvironmentVariable(const char* name, const char* value) : name_(name) {
    if (const char* before = std::getenv(name); before != nullptr) before_ = before;
    set(value);
  }
  ~EnvironmentVariable() { set(before_ ? before_->c_str() : nullptr); }
  EnvironmentVariable(const EnvironmentVariable&) = delete;
  EnvironmentVariable& operator=(const EnvironmentVariable&) = delete;

 private:
  void set(const char* value) const {
    if (value == nullptr) {
      unsetenv(name_);
    } else {
      setenv(name_, value, 1);
    }
  }

  const char* const name_;
  std::optional<std::string> before_;
};

}  // namespace rdmacomm::testing
