#include "rdma_copy/destination.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <climits>
#include <utility>

#include "base/system_call.h"
#include "rdma_copy/new_file.h"

namespace rdmacomm::copying {
namespace {

/// It must be readable only if it will be synced.
Result<UniqueFd> open_folder(const Place& place, const std::string& path, const CopyOptions& options) {
  return place.open(path, (options.sync ? O_RDONLY : O_PATH) | O_DIRECTORY);
}

Result<Target> make_folder(const Place& place, const Destination& to, const CopyOptions& options) {
  const std::string name = to.path.substr(0, to.path.find_last_not_of('/') + 1);
  auto spot = place.find(name);
  if (!spot) return spot.error();
  if (options.dry_run) return Target{{std::move(spot->folder), ""}, true};
  if (::mkdirat(spot->folder.get(), spot->name.c_str(), 0777 & ~to.mask) != 0) {
    return make_error(last_system_error(), "");
  }
  auto folder = open_folder(place, name, options);
  if (!folder) return folder.error();
  return Target{{std::move(*folder), ""}};
}

/// no_folder  why the path is no directory
Result<Target> find_name(const Place& place, const Destination& to, const Error& no_folder) {
  const bool may_be_new =
      no_folder.code == std::errc::no_such_file_or_directory || no_folder.code == std::errc::not_a_directory;
  if (!may_be_new) return no_folder;
  if (to.sources > 1) return make_error(no_folder.code, "the destination of several sources must be a directory");
  auto spot = place.find(to.path);
  if (!spot) return spot.error();
  if (spot->name.size() > NAME_MAX) return make_error(std::make_error_code(std::errc::filename_too_long), "");
  if (leads_into_proc(*spot)) {
    return make_error(std::make_error_code(std::errc::not_supported),
                      "it leads to an open file, not to a name; rdma_send and rdma_recv copy to standard output");
  }
  if (is_partial_name(spot->name))
    return make_error(Errc::kInvalidArgument, "such names are reserved for unfinished copies");
  struct stat is = {};
  const auto there = place.open(to.path, O_PATH);
  if (there && ::fstat(there->get(), &is) == 0 && !S_ISREG(is.st_mode)) {
    return make_error(std::make_error_code(std::errc::not_supported), "it is not a regular file");
  }
  return Target{std::move(*spot)};
}

Result<Target> find_out(const Place& place, const Destination& to, const CopyOptions& options) {
  auto folder = open_folder(place, to.path, options);
  const bool is_folder = to.path.ends_with('/');
  if (!folder && !is_folder) return find_name(place, to, folder.error());
  if (folder.code() == std::errc::no_such_file_or_directory) return make_folder(place, to, options);
  if (!folder) return folder.error();
  return Target{{std::move(*folder), ""}};
}

}  // namespace

Result<Target> open_destination(const Place& place, const Destination& to, const CopyOptions& options) {
  auto spot = find_out(place, to, options);
  if (spot) return spot;
  const std::string& why = spot.error().context;
  return make_error(spot.code(), "cannot copy to \"" + escaped(to.path) + (why.empty() ? "\"" : "\": " + why));
}

}  // namespace rdmacomm::copying
