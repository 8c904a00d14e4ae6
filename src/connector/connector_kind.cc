#include <string>

#include "rdmacomm/connector.h"

namespace rdmacomm {

const char* to_text(ConnectorKind kind) noexcept {
  switch (kind) {
    case ConnectorKind::kAuto: return "auto";
    case ConnectorKind::kTcp: return "tcp";
    case ConnectorKind::kCm: return "cm";
  }
  return "unknown";
}

Result<ConnectorKind> connector_kind_from(std::string_view text) {
  for (const ConnectorKind kind : {ConnectorKind::kAuto, ConnectorKind::kTcp, ConnectorKind::kCm}) {
    if (text == to_text(kind)) return kind;
  }
  return make_error(Errc::kInvalidArgument,
                    "unknown connector \"" + std::string(text) + "\"; it must be auto, tcp or cm");
}

}  // namespace rdmacomm
