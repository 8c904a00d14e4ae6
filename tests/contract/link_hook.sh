#!/bin/sh
# Takes the network interface under an RDMA device down and up again, and a software device away and back. As root, on
# machines that are there for it: the contract suite calls it where RDMACOMM_TEST_MAY_BREAK_LINK names the interface.
#
#   link_hook.sh down INTERFACE                     takes it down; remembers its routes, which the kernel then drops
#   link_hook.sh up INTERFACE                       takes it up, with the routes that it had
#   link_hook.sh remove DEVICE                      deletes an rxe or siw device; returns when nobody has it open any more
#   link_hook.sh restore DEVICE TYPE INTERFACE      makes it again
set -eu

action=$1
shift
routes=${TMPDIR:-/tmp}/rdmacomm_routes_$1

case $action in
down)
  # Those that the kernel makes of addresses come back by themselves.
  for family in 4 6; do
    ip "-$family" route show table all dev "$1" | grep -v 'table local\|proto kernel' | sed "s/^/$family /"
  done >"$routes"
  ip link set dev "$1" down
  ;;
up)
  ip link set dev "$1" up
  [ -e "$routes" ] || exit 0
  while read -r family route; do
    # shellcheck disable=SC2086  # a route is several words
    ip "-$family" route replace $route dev "$1"
  done <"$routes"
  rm "$routes"
  ;;
remove)
  rdma link delete "$1"
  ;;
restore)
  [ -e "/sys/class/infiniband/$1" ] || rdma link add "$1" type "$2" netdev "$3"
  ;;
*)
  echo "usage: link_hook.sh down|up|remove|restore ..." >&2
  exit 2
  ;;
esac
