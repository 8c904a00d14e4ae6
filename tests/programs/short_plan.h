// short_plan.h - what a test has lat_bw_benchmark measure where any measurement will do.
#pragma once

#include "lat_bw_benchmark/plan.h"

namespace rdmacomm::benchmark {

inline Plan short_plan() {
  Plan plan;
  plan.tests = {TestKind::kLat};
  plan.ops = {Op::kWrite};
  plan.sizes = {8};
  plan.iterations = 10;
  plan.duration_us = 0;
  plan.rounds = 1;
  return plan;
}

}  // namespace rdmacomm::benchmark
