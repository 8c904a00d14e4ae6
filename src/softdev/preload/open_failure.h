// open_failure.h - the reason why a soft device could not be opened, for the user of the program.
#pragma once

#include <string>

namespace rdmacomm::softdev::preload {

/// The cause and the remedy, for one line. Most programs say only that they could not open the device.
/// name   of the device
/// error  the errno value of the failure
[[nodiscard]] std::string describe_open_failure(const std::string& name, int error);

}  // namespace rdmacomm::softdev::preload
