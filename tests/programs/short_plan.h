// short_plan.h - a plan for lat_bw_benchmark, for tests that accept any measurement.
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
