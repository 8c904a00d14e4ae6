# Functions and variables that the scripts share. Sourced, never run; the caller has set -euo pipefail.
# shellcheck shell=bash

# The top directory of the source tree. Does not depend on the current directory.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
JOBS=$(nproc)
# Number of tests that ctest runs at a time. Many wait most of the time; tests that do not wait count as two
# (tests/CMakeLists.txt).
TEST_JOBS=$((2 * JOBS))

# say TEXT: prints one line about the next step, on standard error if the result is already on standard output.
say() { printf '==> %s\n' "$*"; }

# fail TEXT: prints the reason in one line and exits with status 1, or with the status that the script has set.
FAIL_STATUS=1
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$FAIL_STATUS"
}

# listening_port LINE: the port in the line that a server of this project prints when it listens.
listening_port() {
  [[ $1 =~ listening\ on\ port\ ([0-9]+) ]] || fail "the server printed no port: $1"
  printf '%s\n' "${BASH_REMATCH[1]}"
}

# build PRESET [cmake configure options]: configures and builds build/PRESET, in the top directory of the tree.
build() {
  local preset=$1
  shift
  say "configuring and building preset $preset in build/$preset"
  cmake --preset "$preset" "$@" >"$ROOT/build/$preset.configure.log" 2>&1 || {
    cat "$ROOT/build/$preset.configure.log" >&2
    fail "cmake could not configure preset $preset; its messages are above"
  }
  cmake --build --preset "$preset" -j "$JOBS" || fail "preset $preset does not build; the compiler's messages are above"
}
