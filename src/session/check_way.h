// check_way.h - checks that rdma_cm has chosen the device, port and GID of the session. Private to the session layer.
#pragma once

#include <string>

#include "connector/connector.h"
#include "device/device_core.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// Checks the choice of rdma_cm. It depends on the addresses, which may lead over another device, port or GID than
/// those of the session.
///
/// connection  "10.2.0.1:4711 with 10.2.0.2:2020", for the error
/// Returns  kInvalidArgument: another device or port than that of `device`, whose queue pairs are to be connected; or
///          another GID than its options ask for. The context has both choices
[[nodiscard]] Status check_way(const RdmaWay& way, const DeviceCore& device, const std::string& connection);

}  // namespace rdmacomm
