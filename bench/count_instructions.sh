#!/bin/sh
# Counts with callgrind the instructions of one 8-byte WRITE, raw and through RDMAChannel. Each variant runs twice with
# different numbers of operations, so that the cost of set-up cancels out.
#
# usage: count_instructions.sh PATH_TO_CHANNEL_OVERHEAD [MOST]
#        MOST: exit 1 when the channel adds more instructions than that to an operation
set -eu

program=${1:?usage: count_instructions.sh PATH_TO_CHANNEL_OVERHEAD [MOST]}
most=${2:-}
few=1000
many=11000

# instructions SIDE OPERATIONS: those of the posting thread and all others, set-up included.
instructions() {
  valgrind --tool=callgrind --callgrind-out-file=/dev/null "$program" "--count=$1" "$2" 2>&1 |
    sed -n 's/.*Collected *: *\([0-9]*\).*/\1/p'
}

per_operation() {
  low=$(instructions "$1" "$few")
  high=$(instructions "$1" "$many")
  [ -n "$low" ] && [ -n "$high" ] || { echo "count_instructions.sh: callgrind reported no instructions" >&2; exit 1; }
  echo $(((high - low) / (many - few)))
}

raw=$(per_operation raw)
channel=$(per_operation channel)
added=$((channel - raw))
echo "instructions per operation (post and poll of one WRITE): raw $raw, channel $channel, added $added"
[ -z "$most" ] || [ "$added" -le "$most" ]
