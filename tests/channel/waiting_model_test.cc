// No wake-up is lost: drives the sleeping waiters through every interleaving with the steps of a device and another
// thread.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>

#include <algorithm>
#include <utility>

#include "channel/completion_waiter.h"
#include "support/model_queue.h"

namespace rdmacomm {
namespace {

using rdmacomm::testing::Choices;
using rdmacomm::testing::ModelQueue;
using ::testing::HasSubstr;

/// The kind of loop that waits.
enum class Loop {
  kStep,               ///< like every caller in the library
  kOutside,            ///< like an application that sleeps on fd()
  kWithoutSecondPoll,  ///< wrong: completions from before the arming make no event
};

struct Way {
  const char* name;
  PollingMode mode;
  Loop loop;
};

/// Runs one schedule: waits until all completions of the script have been taken or, if the script has a W, until the
/// stop.
class Run {
 public:
  Run(const Way& way, const std::string& script, Choices& choices)
      : way_(way),
        model_(script, choices),
        wanted_(static_cast<int>(std::ranges::count(script, 'P'))),
        ends_by_stop_(script.find('W') != std::string::npos) {
    auto waiter = CompletionWaiter::create(way.mode, model_.queue(), {.spin = std::chrono::microseconds(0)});
    EXPECT_TRUE(waiter.has_value());
    waiter_ = std::move(*waiter);
    model_.on_stop = [this] { waiter_->wake(); };
  }

  /// Returns an empty string, or the failure.
  [[nodiscard]] std::string outcome() {
    model_.step_aside();
    for (int steps = 0; steps < 100; ++steps) {
      if (ends_by_stop_ ? model_.stopped() : taken_ == wanted_) {
        return model_.most_events() <= 1 ? "" : "two events at a time";
      }
      if (!asleep()) continue;
      // For a sleeping thread, remaining steps of the script are equivalent to steps before the sleep. So only
      // schedules in which all steps are done are judged.
      if (!model_.script_done()) return "";
      return "sleeps for ever: " + std::to_string(model_.waiting()) + " in the queue";
    }
    return "does not come to an end";
  }

 private:
  /// Runs one step. Returns whether it has reached a sleep that nothing ends.
  [[nodiscard]] bool asleep() {
    const auto poll = [this] { return model_.poll_one(); };
    bool polled = false;
    const auto poll_first = [&] { return !std::exchange(polled, true) && model_.poll_one(); };
    const int events = model_.events_taken();
    bool found = false;
    switch (way_.loop) {
      case Loop::kStep: found = waiter_->step(poll, Deadline::after({})); break;
      case Loop::kWithoutSecondPoll: found = waiter_->step(poll_first, Deadline::after({})); break;
      case Loop::kOutside: found = waiter_->step_outside(poll); break;
    }
    if (found) ++taken_;
    if (found) return false;
    if (way_.loop != Loop::kOutside) return model_.events_taken() == events && !model_.stopped();
    if (model_.stopped()) return false;  // checked before the sleep, as step_outside() requires
    model_.step_aside();
    pollfd readable{waiter_->fd(), POLLIN, 0};
    return ::poll(&readable, 1, 0) == 0;
  }

  const Way way_;
  ModelQueue model_;
  std::unique_ptr<CompletionWaiter> waiter_;
  const int wanted_;
  const bool ends_by_stop_;
  int taken_ = 0;
};

struct Found {
  std::size_t schedules = 0;
  std::string first_failure;
};

Found explore(const Way& way, const std::string& script) {
  Found found;
  Choices choices;
  do {
    ++found.schedules;
    const std::string failure = Run(way, script, choices).outcome();
    if (failure.empty()) continue;
    found.first_failure = failure + " (script " + script + ", choices " + choices.to_text() + ")";
    break;
  } while (choices.next());
  return found;
}

/// Single completions, two completions before the device checks, and a stop request at each position.
const std::vector<std::string>& scripts() {
  static const std::vector<std::string> all = {"PN",  "PNPN", "PPNN",  "PPNPNN", "W",     "WPN",
                                               "PWN", "PNW",  "PWPNN", "PNWPN",  "PPWNN", "PNPNW"};
  return all;
}

class WaitingModel : public ::testing::TestWithParam<Way> {};

TEST_P(WaitingModel, NoWakeUpIsLostInAnySchedule) {
  std::size_t schedules = 0;
  for (const std::string& script : scripts()) {
    const Found found = explore(GetParam(), script);
    EXPECT_EQ(found.first_failure, "");
    schedules += found.schedules;
  }
  EXPECT_GT(schedules, 1000U);
  RecordProperty("schedules", std::to_string(schedules));
}

INSTANTIATE_TEST_SUITE_P(Ways, WaitingModel,
                         ::testing::Values(Way{"CompletionChannel", PollingMode::kCompletionChannel, Loop::kStep},
                                           Way{"Epoll", PollingMode::kEpoll, Loop::kStep},
                                           Way{"EpollOutside", PollingMode::kEpoll, Loop::kOutside},
                                           Way{"Adaptive", PollingMode::kAdaptive, Loop::kStep}),
                         [](const auto& way) { return std::string(way.param.name); });

// Proves that the enumeration detects this error, and thus that the test above is meaningful.
TEST(WaitingModelItself, FindsTheLostWakeUpWithoutTheSecondPoll) {
  for (const PollingMode mode : {PollingMode::kCompletionChannel, PollingMode::kEpoll, PollingMode::kAdaptive}) {
    const Found found = explore({"", mode, Loop::kWithoutSecondPoll}, "PN");
    EXPECT_THAT(found.first_failure, HasSubstr("sleeps for ever: 1 in the queue")) << to_text(mode);
  }
}

TEST(WaitingModelItself, EnumeratesAllSequences) {
  Choices choices;
  std::vector<std::string> seen;
  do {
    const std::size_t first = choices.choose(3);
    if (first == 1) choices.choose(2);
    seen.push_back(choices.to_text());
  } while (choices.next());
  EXPECT_EQ(seen, (std::vector<std::string>{"0 ", "1 0 ", "1 1 ", "2 "}));
}

}  // namespace
}  // namespace rdmacomm
