// An application that defines its own macros LOG and CHECK, and receives the library's log lines.
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#define LOG(text) std::printf("own log: %s\n", text)
#define CHECK(condition) ((condition) ? (void)0 : (std::fprintf(stderr, "own check: %s\n", #condition), std::exit(1)))

#include "rdmacomm/rdmacomm.h"

#ifdef GOOGLE_STRIP_LOG
#error "a header of rdmacomm includes glog"
#endif

int main() {
  std::vector<std::string> lines;
  rdmacomm::set_log_sink([&](rdmacomm::LogSeverity, std::string_view line) { lines.emplace_back(line); });
  const auto device = rdmacomm::RDMADevice::open();
  rdmacomm::set_log_sink({});
  CHECK(device.has_value());
  // Without hardware, a warning says that soft0 is used.
  if (device->is_software()) CHECK(lines.size() == 1 && lines[0].find("soft0") != std::string::npos);
  LOG("the library's lines arrived");
  return 0;
}
