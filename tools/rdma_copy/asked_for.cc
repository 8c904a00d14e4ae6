#include "rdma_copy/asked_for.h"

#include <utility>

#include "rdma_copy/place.h"

namespace rdmacomm::copying {
namespace {

Error not_asked_for(const Entry& entry, const std::string& why) {
  return make_error(Errc::kBadMessage, "the sending rdma_copy has sent \"" + escaped(entry.name) + "\", which " + why);
}

}  // namespace

AskedFor::AskedFor(const std::vector<std::string>& paths) : sources_(paths.size()) {
  for (const std::string& path : paths) names_.push_back(PathParts::of(path).name);
}

Status AskedFor::take(FrameKind kind, const Entry& entry, bool top, const CopyOptions& options) {
  if (kind == FrameKind::kDirectory && !options.recursive) {
    return not_asked_for(entry, "is a directory: directories were not asked for");
  }
  if (kind == FrameKind::kLink && !options.links_as_links()) {
    return not_asked_for(entry, "is a symbolic link: links were not asked for");
  }
  if (entry.asks && !options.looks_at_old()) {
    return not_asked_for(entry, "it wants to compare with the existing file: that was not asked for");
  }
  if (!top) return {};
  while (next_ < names_.size() && names_[next_] != entry.name) ++next_;
  if (next_ == sources_) return not_asked_for(entry, "was not asked for");
  ++next_;
  ++taken_;
  return {};
}

}  // namespace rdmacomm::copying
