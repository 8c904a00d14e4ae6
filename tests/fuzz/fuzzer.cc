// The entry point of libFuzzer, which calls the target that RDMACOMM_FUZZ_TARGET names.
#include <cstddef>
#include <cstdint>
#include <span>

#include "fuzz/target.h"

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  rdmacomm::fuzz::RDMACOMM_FUZZ_TARGET.run(std::as_bytes(std::span(data, size)));
  return 0;
}
