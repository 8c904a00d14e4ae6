#!/bin/sh
# Takes the network interface below an RDMA device down and up again, and removes and restores a software device. Needs
# root and a dedicated machine: the contract suite calls it if RDMACOMM_TEST_MAY_BREAK_LINK names the interface.
#
#   link_hook.sh down INTERFACE                     takes it down; saves its routes, which the kernel then drops
#   link_hook.sh up INTERFACE                       takes it up, with its previous routes
#   link_hook.sh remove DEVICE                      deletes an rxe or siw device; returns when no process has it open
#                                                   any more
#   link_hook.sh restore DEVICE TYPE INTERFACE      creates it again
set -eu

action=$1
shift
routes=${TMPDIR:-/tmp}/rdmacomm_routes_$1

case $action in
down)
  # The routes that the kernel derives from addresses return by themselves.
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
