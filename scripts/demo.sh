#!/usr/bin/env bash
# Builds the library and shows its programs. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$ROOT/scripts/lib/packages.sh"

usage() {
  cat <<'END'
usage: scripts/demo.sh [--no-install] [-- OPTION...]

Sets up and builds rdmacomm on this machine, and runs its programs. The script
  1. installs missing Debian packages with apt-get (as root, or with sudo);
  2. builds the library and the programs (preset release, in build/release);
  3. runs ping_pong_test: a server process and a client process use every verb
     once and verify each byte;
  4. runs lat_bw_benchmark: latency, bandwidth and message rate, as a table;
  5. runs mesh_comm_service: eight processes write to each other, and
     build/mesh.svg becomes a picture of the rates;
  6. sends 256 MiB from rdma_send to rdma_recv, at port 2020;
  7. copies 64 MiB with rdma_copy to a server, then only the changed part
     (--delta).
The programs use the first RDMA device with an active port; without one, they
use the software device soft0.

  --no-install   install nothing: print the missing packages, and exit with
                 status 1
  --help         print this text
  OPTION...      options for all programs, for example --device=mlx5_0
END
}

install=install
options=()
while [ $# -gt 0 ]; do
  case $1 in
    --no-install) install=no-install ;;
    -h | --help) usage; exit 0 ;;
    --) shift; options=("$@"); break ;;
    *) fail "unknown option $1; see --help" ;;
  esac
  shift
done

exec </dev/null
cd "$ROOT"
mkdir -p build
ensure_packages "$install" run
build release -DRDMACOMM_BUILD_BENCH=OFF

say "ping_pong_test: every verb once, verified, then a ping-pong whose time is measured"
build/release/bin/ping_pong_test --role=both "${options[@]}"
export RDMACOMM_SOFT0_MEMLOCK=off  # the limit of locked memory must not decide whether a user sees the programs run
export GLOG_minloglevel=2  # without hardware, each program warns that it uses soft0; once is enough
say "lat_bw_benchmark: two processes, all operations"
build/release/bin/lat_bw_benchmark --role=both --sizes=8,4K,64K,1M --duration=0.2 "${options[@]}"
say "mesh_comm_service: eight processes write to each other"
build/release/bin/mesh_comm_service --local=8 --duration=1 --heatmap=build/mesh.svg "${options[@]}" | tail -n 15
say "the picture: file://$ROOT/build/mesh.svg"
say "rdma_send | rdma_recv: 256 MiB, with a checksum"
build/release/bin/rdma_recv --timeout=20 --stats "${options[@]}" >/dev/null &
head -c 256M /dev/zero | build/release/bin/rdma_send 127.0.0.1 --stats "${options[@]}"
wait $!
say "rdma_copy: 64 MiB to a server; then one more byte, with --delta"
folder=$(mktemp -d)
mkdir "$folder/served"
head -c 64M /dev/urandom >"$folder/data"
coproc server { exec build/release/bin/rdma_copy --serve --root="$folder/served" --port=0 "${options[@]}"; }
trap 'kill "$server_PID" 2>/dev/null || true; rm -rf "$folder"' EXIT
read -r line <&"${server[0]}"
port=$(listening_port "$line")
for more in --checksum --delta; do
  build/release/bin/rdma_copy "$more" --port="$port" "${options[@]}" "$folder/data" 127.0.0.1:
  cmp "$folder/data" "$folder/served/data"
  printf x >>"$folder/data"
done
say "all of it worked. Next: README.md, \"Write your own program\", or docs/tutorial.md"
