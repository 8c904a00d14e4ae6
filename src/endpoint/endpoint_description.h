// endpoint_description.h - the description of an endpoint that is sent to the peer: the contents of kOffer and kAnswer.
// Layer: endpoint. Uses: base, verbs, adapter.   Wire form: docs/wire_format.md "EndPointDescription"
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "adapter/adapter_core.h"
#include "adapter/gid_agreement.h"
#include "rdmacomm/config.h"
#include "rdmacomm/qp_address.h"
#include "rdmacomm/result.h"

namespace rdmacomm {

/// The channels, GIDs, published regions and private data of one end. A value; bounds as in HcaConfig.
struct EndPointDescription {
  struct Channel {
    std::string name = {};
    QpAddress address = {};
  };

  static constexpr std::size_t kMaxGids = 12;

  std::vector<Channel> channels = {};
  std::vector<std::string> more = {};  ///< names of channels on other devices; kChannel follows for each of them
  std::vector<OfferedGid> gids = {};   ///< GIDs by which this end can be reached, the best first; at most kMaxGids
  std::optional<std::size_t>
      chosen_gid{};  ///< kAnswer: index of the chosen GID in the `gids` of the offer; kOffer: empty
  std::vector<PublishedRegion> regions = {};
  std::vector<std::byte> private_data = {};

  /// The channel of that name; nullptr: none.
  [[nodiscard]] const Channel* channel(std::string_view name) const noexcept;
  /// "control, data, stripe (on another device)": the names in alphabetical order.
  [[nodiscard]] std::string channel_names() const;

  [[nodiscard]] std::vector<std::byte> encode() const;
  /// kBadMessage: truncated, bytes left over, a duplicate or unprintable name, or a count beyond its bound. The context
  /// has the details.
  [[nodiscard]] static Result<EndPointDescription> decode(std::span<const std::byte> payload);
};

}  // namespace rdmacomm
