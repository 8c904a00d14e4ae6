// session_parts.h - the session settings that both peers of the benchmark use.
#pragma once

#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/plan.h"
#include "lat_bw_benchmark/workspace.h"
#include "rdmacomm/config.h"
#include "rdmacomm/endpoint.h"
#include "support/mode_flags.h"

namespace rdmacomm::benchmark {

/// The flags for the queue pair and for polling.
struct ModesAndAdapter {
  AdapterConfig adapter = {};
  programs::ModeFlags modes = {};
};

/// Configures one data channel for the plan, and publishes the workspace. With the default modes the channel has its
/// own completion queue, which has the lowest latency.
/// connection  the connection flags for the queue pair
void fit_hca(HcaConfig& hca, const ModesAndAdapter& connection, const Plan& plan, Workspace& workspace);

/// Whether the device supports the plan's message sizes and queue depths.
/// Returns  kBeyondDeviceLimit: the context has both numbers
[[nodiscard]] Status check_limits(const RDMADevice& device, const Plan& plan);

/// kIncompatiblePeer: the peer has published no workspace, or one of the wrong size.
[[nodiscard]] Status check_workspace(const EndPoint& endpoint, const Plan& plan);

}  // namespace rdmacomm::benchmark
