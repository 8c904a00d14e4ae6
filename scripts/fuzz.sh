#!/usr/bin/env bash
# Builds the fuzz targets and runs them. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$ROOT/scripts/lib/packages.sh"

usage() {
  cat <<END
usage: scripts/fuzz.sh [--seconds=N | --executions=N] [OPTION]... [TARGET...]

Builds the fuzz targets (preset fuzz, in build/fuzz) and runs all of them, or
the given ones.

  --seconds=N     N seconds in total, divided among the targets (default 60; at
                  least 1 for each target)
  --executions=N  N executions of each target
  --jobs=N        run N targets at a time (default: the number of CPUs)
  --seed=N        1 to 4294967295: seed for the random numbers of libFuzzer
                  (default: a random seed, which is printed)
  --no-install    install nothing: print the missing packages, and exit with
                  status 1
  --help          print this text

An input that adds coverage is kept in build/fuzz/corpus/TARGET, and the next
run begins with it. An input that crashes a target, or uses too much time or
memory, is kept in build/fuzz/findings.
Exit status: 0: nothing was found; 1: something was found, or the build has
failed; 2: wrong arguments.

targets: $(targets | paste -sd' ' | fold -s -w 70 | sed '2,$s/^/         /')
END
}

targets() {
  local file
  for file in "$ROOT"/tests/fuzz/*_target.cc; do basename "$file" _target.cc; done
}

# number OPTION VALUE MOST: checks that VALUE is a number from 1 to MOST, in digits.
number() {
  [[ $2 =~ ^[1-9][0-9]{0,11}$ ]] && [ "$2" -le "$3" ] || fail "$1=$2: possible are 1 to $3"
}

FAIL_STATUS=2
seconds=''
executions=''
jobs=$JOBS
seed=''
install=install
chosen=()
while [ $# -gt 0 ]; do
  case $1 in
    --seconds=*) seconds=${1#*=} && number --seconds "$seconds" 1000000 ;;
    --executions=*) executions=${1#*=} && number --executions "$executions" 100000000000 ;;
    --jobs=*) jobs=${1#*=} && number --jobs "$jobs" 1024 ;;
    --seed=*) seed=${1#*=} && number --seed "$seed" 4294967295 ;;
    --no-install) install=no-install ;;
    -h | --help) usage; exit 0 ;;
    -*) fail "unknown option $1; see --help" ;;
    *)
      [[ $1 != */* && -f $ROOT/tests/fuzz/$1_target.cc ]] || fail "there is no target $1; see --help"
      chosen+=("$1")
      ;;
  esac
  shift
done
[ -z "$seconds" ] || [ -z "$executions" ] || fail "either --seconds or --executions, not both; see --help"
FAIL_STATUS=1
[ ${#chosen[@]} -gt 0 ] || mapfile -t chosen < <(targets)
[ -n "$seed" ] || seed=$((RANDOM * 32768 + RANDOM + 1))

# limit: the libFuzzer option that ends a run.
if [ -n "$executions" ]; then
  limit=-runs=$executions
else
  each=$((${seconds:-60} * (jobs < ${#chosen[@]} ? jobs : ${#chosen[@]}) / ${#chosen[@]}))
  limit=-max_total_time=$((each > 0 ? each : 1))
fi

# run TARGET: runs it, in parallel to other targets. The log and the exit status stay in build/fuzz/logs.
run() {
  local target=$1 status=0 corpus=build/fuzz/corpus/$1 dictionary=tests/fuzz/dictionaries/$1.dict
  local options=("$limit" "-seed=$seed" -max_len=4096 -timeout=10 -rss_limit_mb=1024 -malloc_limit_mb=64
    -print_final_stats=1 -verbosity=1 "-artifact_prefix=build/fuzz/findings/$target-")
  [ ! -f "$dictionary" ] || options+=("-dict=$dictionary")
  mkdir -p "$corpus"
  "build/fuzz/bin/fuzz_$target" "${options[@]}" "$corpus" "tests/fuzz/corpus/$target" \
    >"build/fuzz/logs/$target" 2>&1 || status=$?
  echo "$status" >"build/fuzz/logs/$target.status"
}

# row TARGET: prints its line of the table.
row() {
  awk -v target="$1" '
    $1 == "stat::number_of_executed_units:" { executions = $2 }
    $1 == "stat::average_exec_per_sec:" { rate = $2 }
    /^#[0-9]+.* cov: / {
      for (i = 1; i < NF; ++i) {
        if ($i == "cov:") edges = $(i + 1)
        if ($i == "ft:") features = $(i + 1)
        if ($i == "corp:") { split($(i + 1), part, "/"); inputs = part[1] }
      }
    }
    END { printf "%-20s %12d %12d %8d %10d %8d\n", target, executions, rate, edges, features, inputs }' \
    "build/fuzz/logs/$1"
}

# finding TARGET: prints one line that says what failed and how to reproduce it.
finding() {
  local log=build/fuzz/logs/$1 input why
  input=$(sed -n 's/.*Test unit written to //p' "$log" | tail -n 1)
  why=$(grep -m 1 -E 'this does not hold|runtime error|ERROR: |out-of-memory|timeout' "$log" | cut -c 1-200)
  if [ -n "$input" ]; then
    say "FOUND $1: ${why:-see $log}; input $input; to reproduce: build/fuzz/bin/fuzz_$1 $input"
  else
    say "FOUND $1: ${why:-it ended with exit status $(<"$log.status")}; see $log"
  fi
}

exec </dev/null
cd "$ROOT"
mkdir -p build
ensure_packages "$install" run ci
build fuzz
rm -rf build/fuzz/logs
mkdir -p build/fuzz/logs build/fuzz/findings
say "running ${#chosen[@]} targets, each with ${limit#-}, seed $seed"

running=0
for target in "${chosen[@]}"; do
  if [ $((running++)) -ge "$jobs" ]; then wait -n || true; fi
  run "$target" &
done
wait

printf '%-20s %12s %12s %8s %10s %8s\n' target executions 'per second' edges features inputs
for target in "${chosen[@]}"; do row "$target"; done
failed=0
for target in "${chosen[@]}"; do
  [ "$(<"build/fuzz/logs/$target.status")" = 0 ] && continue
  finding "$target"
  failed=1
done
exit $failed
