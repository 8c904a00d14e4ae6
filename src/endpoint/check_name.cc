#include "endpoint/check_name.h"

#include <algorithm>
#include <string>

namespace rdmacomm {

Status check_name(std::string_view what, std::string_view name) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (!name.empty() && name.size() <= HcaConfig::kMaxNameBytes && std::ranges::all_of(name, is_printable)) return {};
  return make_error(Errc::kInvalidArgument, "a " + std::string(what) + "'s name of " + std::to_string(name.size()) +
                                                " bytes: it must be 1.." + std::to_string(HcaConfig::kMaxNameBytes) +
                                                " printable ASCII characters");
}

}  // namespace rdmacomm
