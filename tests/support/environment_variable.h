// environment_variable.h - sets an environment variable for a part of a test.
#pragma once

#include <cstdlib>
#include <optional>
#include <string>

namespace rdmacomm::testing {

/// Sets a variable, or (nullptr) removes it from the environment. The destructor restores the previous state.
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
