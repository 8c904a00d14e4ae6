// target.h - a fuzz target: its function for an input, and its seeds.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

namespace rdmacomm::fuzz {

using Bytes = std::span<const std::byte>;

/// An input that a target starts with. A value.
struct Seed {
  std::string name;  ///< name of its file in tests/fuzz/corpus/TARGET
  std::vector<std::byte> bytes;
};

/// A parser of external data. A value; each is defined in TARGET_target.cc.
struct Target {
  const char* name;
  /// Parses the input by the functions that the programs call. Ends the program if a property does not hold.
  void (*run)(Bytes input);
  /// Made by the functions that write the format, so that the seeds change together with the format.
  std::vector<Seed> (*seeds)();
};

extern const Target handshake;
extern const Target endpoint_description;
extern const Target region;
extern const Target stream_segment;
extern const Target cm_segment;
extern const Target copy;
extern const Target mesh_mail;
extern const Target host_list;
extern const Target job_environment;
extern const Target fault_plan;
extern const Target flag_values;
extern const Target program_terms;
extern const Target check_suppressions;
extern const Target soft0_cm;
extern const Target soft0_connection;
extern const Target soft0_control;
extern const Target soft0_greeting;

}  // namespace rdmacomm::fuzz
