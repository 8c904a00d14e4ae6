#!/usr/bin/env bash
# Builds and runs the tests. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$ROOT/scripts/lib/packages.sh"

usage() {
  cat <<'END'
usage: scripts/test.sh [--no-install] [--vm] [-- OPTION...]

Sets up, builds and tests rdmacomm on this machine. The tests send on the
loopback interface only. The script
  1. installs missing Debian packages with apt-get (as root, or with sudo);
  2. builds everything with warnings as errors (preset dev, in build/dev);
  3. runs all tests with ctest, and prints the summary of ctest at the end.

  --no-install   install nothing: print the missing packages, and exit with
                 status 1
  --vm           before step 3, run the same binaries on the rxe and siw
                 devices of the kernel, in an emulated machine (see
                 tests/kernel_vm/run --help). This takes some minutes more
  --help         print this text
  OPTION...      options for ctest, for example -R '^channel'
END
}

install=install
vm=no
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --no-install) install=no-install ;;
    --vm) vm=yes ;;
    -h | --help) usage; exit 0 ;;
    --) shift; options=("$@"); break ;;
    *) fail "unknown option $1; see --help" ;;
  esac
  shift
done

exec </dev/null
cd "$ROOT"
export RDMACOMM_SOFT0_MEMLOCK=off  # tests of the limit set it themselves
mkdir -p build
ensure_packages "$install" run test
build dev

vm_status=0
if [ $vm = yes ]; then
  say "running the suite on the kernel's devices"
  tests/kernel_vm/run "--$install" --no-build || vm_status=$?
fi

say "running the tests"
ctest --preset dev -j "$TEST_JOBS" "${options[@]}"
exit "$vm_status"
