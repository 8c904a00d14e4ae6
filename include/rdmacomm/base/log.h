// log.h - how the library logs: the only place that includes glog.
// Layer: base.
//
// The library writes to glog and never to standard output. What it may say is bounded by the environment
// variable RCL_MAX_VLOG_LEVEL (read once, at the first use):
//   unset or 0   warnings and errors that nobody else reports
//   1            one line for each thing opened, connected, chosen or closed
//   2            every step of a connection
//   3            every message of the handshake
// A function returns an error or logs it, never both.
#pragma once

#include <glog/logging.h>

namespace rdmacomm {

/// The value of RCL_MAX_VLOG_LEVEL; 0 where it is unset or no number. Cost: one load.
[[nodiscard]] int max_vlog_level() noexcept;

}  // namespace rdmacomm

#define RDMACOMM_LOG(severity) LOG(severity) << "rdmacomm: "
#define RDMACOMM_VLOG(level) LOG_IF(INFO, ::rdmacomm::max_vlog_level() >= (level)) << "rdmacomm: "
