// What a user's first program does: compiles the public headers, links the library, calls it, logs through it.
#include <iostream>

#include "rdmacomm/base/log.h"
#include "rdmacomm/base/result.h"
#include "rdmacomm/verbs/api.h"
#include "rdmacomm/verbs/describe.h"
#include "rdmacomm/verbs/handles.h"

int main() {
  const rdmacomm::Error error = rdmacomm::make_error(rdmacomm::Errc::kTimeout, "waiting for the consumer");
  const rdmacomm::verbs::DeviceList devices(rdmacomm::verbs::libibverbs_api());
  RDMACOMM_VLOG(1) << devices.size() << " devices";
  std::cout << error.message() << '\n' << rdmacomm::verbs::to_text(IBV_QPS_RTS) << '\n';
  return error.message() == "waiting for the consumer (timed out)" ? 0 : 1;
}
