// connector_kind.h - by what peers meet.
// Layer: connector. Uses: base.
#pragma once

#include <cstdint>
#include <string_view>

#include "rdmacomm/base/result.h"

namespace rdmacomm {

/// Both sides choose the same. Which is right when: docs/addressing.md "TCP or rdma_cm".
enum class ConnectorKind : std::uint8_t {
  kAuto,  ///< rdma_cm where the device is iWARP, which knows no other way; else TCP
  kTcp,   ///< TCPConnector
  kCm,    ///< CmConnector
};

[[nodiscard]] const char* to_text(ConnectorKind kind) noexcept;  ///< "auto", "tcp", "cm"
/// kInvalidArgument: none of the three.
[[nodiscard]] Result<ConnectorKind> connector_kind_from(std::string_view text);

}  // namespace rdmacomm
