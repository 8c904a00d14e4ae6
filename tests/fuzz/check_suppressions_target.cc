// Files with suppressions for softdev-run --check.
#include "fuzz/properties.h"
#include "softdev/check/rules.h"
#include "softdev/check/suppressions.h"

namespace rdmacomm::fuzz {
namespace {
namespace check_suppressions_target {

using softdev::check::Suppression;

void run(Bytes input) {
  const std::string_view text = text_of(input);
  std::vector<std::string> errors;
  const auto all = softdev::check::parse_suppressions(text, "FILE", errors);
  for (const std::string& error : errors) {
    RDMACOMM_FUZZ_CHECK(error.starts_with("FILE:"));
    check_harmless(error);
  }
  std::string again_text;
  for (const Suppression& each : all) {
    RDMACOMM_FUZZ_CHECK(softdev::check::is_rule(each.rule) && !each.program.empty());
    again_text += each.rule + " " + each.program + " " + each.place + "\n";
  }
  const auto again = softdev::check::parse_suppressions(again_text, "FILE", errors);
  RDMACOMM_FUZZ_CHECK(again.size() == all.size());
  for (std::size_t i = 0; i < all.size(); ++i) {
    RDMACOMM_FUZZ_CHECK(again[i].program == all[i].program && again[i].place == all[i].place);
  }
  static_cast<void>(softdev::check::is_suppressed(all, "leak", "program", {"libx.so"}));
}

std::vector<Seed> seeds() {
  return {{"lines", bytes_of("# a comment\nleak ib_*\n\noverlap\t*  lib[a-z]*.so.1 # another one\n")},
          {"wrong", bytes_of("leek *\nleak\nleak a b c\n")}};
}

}  // namespace check_suppressions_target
}  // namespace

const Target check_suppressions{"check_suppressions", check_suppressions_target::run, check_suppressions_target::seeds};

}  // namespace rdmacomm::fuzz
