// Runs the fuzz targets on files, without libFuzzer, and writes the seed files.
#include <algorithm>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <iterator>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "fuzz/target.h"

namespace rdmacomm::fuzz {
namespace {

namespace fs = std::filesystem;

constexpr const Target* kTargets[] = {&handshake,
                                      &endpoint_description,
                                      &region,
                                      &stream_segment,
                                      &cm_segment,
                                      &copy,
                                      &mesh_mail,
                                      &host_list,
                                      &job_environment,
                                      &flag_values,
                                      &fault_plan,
                                      &program_terms,
                                      &check_suppressions,
                                      &soft0_cm,
                                      &soft0_connection,
                                      &soft0_control,
                                      &soft0_greeting};
constexpr std::string_view kFound = "found_";  // prefix of inputs that no seed function makes
constexpr const char* kUsage =
    "usage: fuzz_corpus replay|check|write FOLDER\n\n"
    "FOLDER has a folder for each fuzz target, with its inputs: tests/fuzz/corpus.\n"
    "  replay   runs each target on its inputs\n"
    "  check    compares the inputs with those that the targets make now; names that begin with found_ are left out\n"
    "  write    writes those that the targets make now, and removes others, but for found_*\n";

std::vector<std::byte> content(const fs::path& file) {
  std::ifstream in(file, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  const auto bytes = std::as_bytes(std::span(text));
  return {bytes.begin(), bytes.end()};
}

std::vector<fs::path> entries(const fs::path& folder) {
  std::vector<fs::path> found;
  if (!fs::is_directory(folder)) return found;
  for (const auto& entry : fs::directory_iterator(folder)) found.push_back(entry.path());
  std::ranges::sort(found);
  return found;
}

/// A target ends the process if a property does not hold: the last line names the input.
bool replay(const fs::path& folder, const Target& target) {
  const std::vector<fs::path> files = entries(folder / target.name);
  for (const fs::path& file : files) {
    std::cerr << "input " << file.string() << std::endl;
    target.run(content(file));
  }
  target.run({});
  std::cout << target.name << ": " << files.size() << " inputs\n";
  return !files.empty();
}

bool is_found(const fs::path& file) {
  return file.filename().string().starts_with(kFound);
}

bool check(const fs::path& folder, const Target& target) {
  std::vector<std::string> wrong;
  const std::vector<Seed> seeds = target.seeds();
  for (const Seed& seed : seeds) {
    const fs::path file = folder / target.name / seed.name;
    if (!fs::exists(file) || content(file) != seed.bytes) wrong.push_back(file.string());
  }
  for (const fs::path& file : entries(folder / target.name)) {
    if (!is_found(file) && std::ranges::find(seeds, file.filename().string(), &Seed::name) == seeds.end()) {
      wrong.push_back(file.string());
    }
  }
  for (const std::string& file : wrong) {
    std::cerr << file << " is not what target " << target.name << " makes now; run: fuzz_corpus write "
              << folder.string() << '\n';
  }
  return wrong.empty();
}

bool write(const fs::path& folder, const Target& target) {
  const fs::path place = folder / target.name;
  fs::create_directories(place);
  for (const fs::path& file : entries(place)) {
    if (!is_found(file)) fs::remove(file);
  }
  bool written = true;
  for (const Seed& seed : target.seeds()) {
    std::ofstream out(place / seed.name, std::ios::binary);
    out.write(reinterpret_cast<const char*>(seed.bytes.data()), static_cast<std::streamsize>(seed.bytes.size()));
    written = out.flush().good() && written;
  }
  return written;
}

/// Folders that belong to no target.
bool has_strays(const fs::path& folder) {
  bool found = false;
  for (const fs::path& place : entries(folder)) {
    const auto is_of = [&](const Target* target) { return place.filename() == target->name; };
    if (std::ranges::any_of(kTargets, is_of)) continue;
    std::cerr << place.string() << " belongs to no target\n";
    found = true;
  }
  return found;
}

int main(std::vector<std::string> arguments) {
  const auto is = [&](const char* command) { return arguments.size() == 2 && arguments[0] == command; };
  auto* const step = is("replay") ? replay : is("check") ? check : is("write") ? write : nullptr;
  if (step == nullptr) {
    const bool asked = arguments == std::vector<std::string>{"--help"};
    (asked ? std::cout : std::cerr) << kUsage;
    return asked ? 0 : 2;
  }
  bool good = true;
  for (const Target* const target : kTargets) good = step(arguments[1], *target) && good;
  return good && !has_strays(arguments[1]) ? 0 : 1;
}

}  // namespace
}  // namespace rdmacomm::fuzz

int main(int count, char** words) {
  return rdmacomm::fuzz::main({words + 1, words + count});
}
