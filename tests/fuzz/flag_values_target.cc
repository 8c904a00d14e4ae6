// Flag values that are not just numbers: sizes, and lists of names.
#include "fuzz/properties.h"
#include "lat_bw_benchmark/plan.h"
#include "mesh_comm_service/terms.h"
#include "support/sizes.h"

namespace rdmacomm::fuzz {
namespace {
namespace flag_values_target {

void check_size(std::string_view text) {
  const auto size = programs::parse_size(text);
  if (!check_outcome(size)) return;
  RDMACOMM_FUZZ_CHECK(*size > 0);
  const auto again = programs::parse_size(programs::size_text(*size));
  RDMACOMM_FUZZ_CHECK(again.has_value() && *again == *size);
}

void check_sizes(std::string_view text) {
  const auto sizes = programs::parse_sizes(text);
  if (!check_outcome(sizes)) return;
  RDMACOMM_FUZZ_CHECK(!sizes->empty() && sizes->size() <= programs::kMaxSizes);
  std::string list;
  for (std::size_t i = 0; i < sizes->size(); ++i) {
    RDMACOMM_FUZZ_CHECK((*sizes)[i] > (i == 0 ? 0 : (*sizes)[i - 1]));
    list += (list.empty() ? "" : ",") + programs::size_text((*sizes)[i]);
  }
  const auto again = programs::parse_sizes(list);
  RDMACOMM_FUZZ_CHECK(again.has_value() && *again == *sizes);
}

/// The text form of a list of names is parsed to the same list again.
template <typename Parse>
void check_names(std::string_view text, Parse parse) {
  const auto names = parse(text);
  if (!check_outcome(names)) return;
  std::string list;
  for (const auto name : *names) list += (list.empty() ? "" : ",") + std::string(benchmark::to_text(name));
  const auto again = parse(list);
  RDMACOMM_FUZZ_CHECK(again.has_value() && *again == *names);
}

void run(Bytes input) {
  const std::string_view text = text_of(input);
  check_size(text);
  check_sizes(text);
  check_names(text, benchmark::parse_tests);
  check_names(text, benchmark::parse_ops);
  (void)check_outcome(benchmark::parse_buffers(text));
  const auto op = mesh::parse_op(text);
  if (check_outcome(op)) RDMACOMM_FUZZ_CHECK(mesh::op_name(*op) == text);
}

std::vector<Seed> seeds() {
  return {
      {"size", bytes_of("64")},
      {"size_with_suffix", bytes_of("4K")},
      {"largest_size", bytes_of("4294967296G")},
      {"too_large", bytes_of("18446744073709551616")},
      {"range", bytes_of("1:8M")},
      {"list", bytes_of("1,64,4k,1m,2G")},
      {"tests", bytes_of("rate,lat,bibw,bw")},
      {"ops", bytes_of("send,write_imm,compare_swap")},
      {"all", bytes_of("all")},
      {"buffers", bytes_of("roundrobin")},
      {"mesh_op", bytes_of("write_imm")},
  };
}

}  // namespace flag_values_target
}  // namespace

const Target flag_values{"flag_values", flag_values_target::run, flag_values_target::seeds};

}  // namespace rdmacomm::fuzz
