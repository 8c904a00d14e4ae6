#include "base/check_name.h"

#include <algorithm>
#include <string>

namespace rdmacomm {

Status check_name(std::string_view what, std::string_view name) {
  const auto is_printable = [](char c) { return c >= ' ' && c <= '~'; };
  if (!name.empty() && name.size() <= kMaxNameBytes && std::ranges::all_of(name, is_printable)) return {};
  return make_error(Errc::kInvalidArgument, "the name of a " + std::string(what) + " has " +
                                                std::to_string(name.size()) + " bytes: it must be 1.." +
                                                std::to_string(kMaxNameBytes) + " printable ASCII characters");
}

}  // namespace rdmacomm
