# What the scripts share. Sourced, never run; the caller has set -euo pipefail.
# shellcheck shell=bash

# The top of the source tree, from wherever the script was called.
ROOT=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
JOBS=$(nproc)
# How many tests ctest runs at a time. Many wait most of the time; those that do not count as two (tests/CMakeLists.txt).
TEST_JOBS=$((2 * JOBS))

# say TEXT: one line on what happens next. On standard error where it would come after the result.
say() { printf '==> %s\n' "$*"; }

# fail TEXT: one line on why not, and exit status 1, or the one that the script has set.
FAIL_STATUS=1
fail() {
  printf '%s: %s\n' "${0##*/}" "$*" >&2
  exit "$FAIL_STATUS"
}

# listening_port LINE: the port in what a server of this project says when it listens.
listening_port() {
  [[ $1 =~ listening\ on\ port\ ([0-9]+) ]] || fail "no port in what the server says: $1"
  printf '%s\n' "${BASH_REMATCH[1]}"
}

# build PRESET [cmake configure options]: configures and builds build/PRESET, from the top of the tree.
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
