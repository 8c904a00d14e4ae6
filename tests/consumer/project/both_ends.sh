#!/bin/sh
# Runs a program as the server and as the client of the README.
# usage: both_ends.sh PROGRAM
set -eu

out=$(mktemp)
"$1" >"$out" &
server=$!
trap 'kill "$server" 2>/dev/null || true; rm -f "$out"' EXIT
for _ in $(seq 200); do
  port=$(sed -n 's/^listening on port //p' "$out")
  [ -z "$port" ] || break
  sleep 0.1
done
"$1" "127.0.0.1:$port"
wait "$server"
grep -x 'notified of 42: hello' "$out"
