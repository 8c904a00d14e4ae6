// model_queue.h - a completion queue for model checking: between its calls, other threads and the device act as a
// script says. Enumerates all possible orders.
#pragma once

#include <gtest/gtest.h>
#include <poll.h>

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "device/device_core.h"
#include "device/native_queue.h"
#include "support/fake_verbs.h"

namespace rdmacomm::testing {

/// Enumerates choices. A run calls choose() repeatedly; next() makes the following run choose differently, until all
/// sequences of choices have been tried.
class Choices {
 public:
  /// Returns a number from 0 to options-1.
  std::size_t choose(std::size_t options) {
    if (at_ == made_.size()) made_.push_back({0, options});
    return made_[at_++].chosen;
  }
  /// Prepares the next run. Returns false after the last one.
  [[nodiscard]] bool next() {
    made_.resize(at_);
    at_ = 0;
    while (!made_.empty() && made_.back().chosen + 1 == made_.back().options) made_.pop_back();
    if (made_.empty()) return false;
    ++made_.back().chosen;
    return true;
  }
  [[nodiscard]] std::string to_text() const {
    std::string text;
    for (std::size_t i = 0; i < at_; ++i) text += std::to_string(made_[i].chosen) + " ";
    return text;
  }

 private:
  struct Choice {
    std::size_t chosen;
    std::size_t options;
  };
  std::vector<Choice> made_;
  std::size_t at_ = 0;
};

/// A completion queue with exactly the guarantees of the verbs: an armed queue makes one event for the next completion
/// after it was armed, and none for completions that are already in the queue. Between any two calls of the waiter, any
/// number of the steps of `script` run, in their order:
///   P  a completion is added to the queue
///   N  then the device checks whether the queue is armed
///   W  another thread asks the waiter to stop: it sets the flag and calls wake()
/// Sleeping is modelled as a check of the descriptors: a sleep ends if it would be woken. Steps that run during a sleep
/// are equivalent to steps just before it. One object per program.
class ModelQueue {
 public:
  ModelQueue(std::string script, Choices& choices) : script_(std::move(script)), choices_(choices) {
    self() = this;
    table_ = FakeVerbs::api();
    table_.get_cq_event = get_cq_event;
    auto device = DeviceCore::open_from(table_, {});
    EXPECT_TRUE(device.has_value());
    device_ = std::move(*device);
    device_->context()->ops.poll_cq = poll_cq;
    device_->context()->ops.req_notify_cq = req_notify_cq;
    auto queue = NativeQueue::create(*device_, {.with_channel = true});
    EXPECT_TRUE(queue.has_value());
    queue_ = std::move(*queue);
  }
  ModelQueue(const ModelQueue&) = delete;
  ModelQueue& operator=(const ModelQueue&) = delete;
  ~ModelQueue() { self() = nullptr; }

  [[nodiscard]] NativeQueue& queue() { return *queue_; }
  /// Called by step W.
  std::function<void()> on_stop;

  [[nodiscard]] bool poll_one() {
    ibv_wc wc;
    return ibv_poll_cq(queue_->get(), 1, &wc) == 1;
  }
  /// Runs any number of the next steps, possibly none.
  void step_aside() {
    for (std::size_t steps = choices_.choose(script_.size() - done_ + 1); steps > 0; --steps) act(script_[done_++]);
  }

  [[nodiscard]] bool script_done() const { return done_ == script_.size(); }
  [[nodiscard]] bool stopped() const { return stopped_; }
  [[nodiscard]] int waiting() const { return waiting_; }
  [[nodiscard]] int events_taken() const { return events_taken_; }
  [[nodiscard]] int most_events() const { return most_events_; }

 private:
  static ModelQueue*& self() {
    static ModelQueue* model = nullptr;
    return model;
  }

  void act(char what) {
    switch (what) {
      case 'P': ++waiting_; break;
      case 'N':
        if (!armed_) break;
        armed_ = false;
        most_events_ = std::max(most_events_, ++events_);
        fake_.raise_event(queue_->get());
        break;
      case 'W':
        stopped_ = true;
        on_stop();
        break;
      default: FAIL() << "no step of the world: " << what;
    }
  }

  static int poll_cq(ibv_cq* /*cq*/, int count, ibv_wc* wcs) {
    ModelQueue& model = *self();
    const int taken = std::min(count, model.waiting_);
    for (int i = 0; i < taken; ++i) wcs[i] = ibv_wc{};
    model.waiting_ -= taken;
    model.step_aside();
    return taken;
  }
  static int req_notify_cq(ibv_cq* /*cq*/, int /*solicited_only*/) {
    self()->armed_ = true;
    self()->step_aside();
    return 0;
  }
  static int get_cq_event(ibv_comp_channel* channel, ibv_cq** cq, void** cq_context) {
    ModelQueue& model = *self();
    const int returned = FakeVerbs::api().get_cq_event(channel, cq, cq_context);
    if (returned == 0) {
      ++model.events_taken_;
      --model.events_;
    }
    model.step_aside();
    return returned;
  }

  const std::string script_;
  Choices& choices_;
  std::size_t done_ = 0;
  int waiting_ = 0;
  int events_ = 0;
  int events_taken_ = 0;
  int most_events_ = 0;
  bool armed_ = false;
  bool stopped_ = false;

  FakeVerbs fake_;
  verbs::Api table_;
  std::shared_ptr<DeviceCore> device_;
  std::unique_ptr<NativeQueue> queue_;
};

}  // namespace rdmacomm::testing
