// session_parts.h - what both sides of the benchmark put into their sessions.
#pragma once

#include "lat_bw_benchmark/messages.h"
#include "lat_bw_benchmark/plan.h"
#include "lat_bw_benchmark/workspace.h"
#include "rdmacomm/config.h"
#include "rdmacomm/endpoint.h"
#include "support/mode_flags.h"

namespace rdmacomm::benchmark {

/// What the flags say of the queue pair, and of who polls and how.
struct ModesAndAdapter {
  AdapterConfig adapter = {};
  programs::ModeFlags modes = {};
};

/// Fits one data channel to the plan; publishes the workspace. The channel has a completion queue of its own, the
/// shortest way there is, where the modes are those by default.
/// connection  what the connection flags say of the queue pair
void fit_hca(HcaConfig& hca, const ModesAndAdapter& connection, const Plan& plan, Workspace& workspace);

/// Whether the device takes messages as large as the plan's, and queues as deep.
/// Returns  kBeyondDeviceLimit: the context has both numbers
[[nodiscard]] Status check_limits(const RDMADevice& device, const Plan& plan);

/// kIncompatiblePeer: the peer has published no workspace, or one that does not fit the plan.
[[nodiscard]] Status check_workspace(const EndPoint& endpoint, const Plan& plan);

}  // namespace rdmacomm::benchmark
