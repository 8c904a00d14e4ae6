# Finds out which Debian packages are missing, and installs them. Sourced after common.sh.
# shellcheck shell=bash

# packages_of GROUP...: the packages that scripts/packages.txt lists for any of the groups.
packages_of() {
  local group
  for group in "$@"; do
    awk -v group="$group" '!/^#/ && $2 == group { print $1 }' "$ROOT/scripts/packages.txt"
  done
}

# missing_packages GROUP...: the packages of the groups that are not installed.
missing_packages() {
  local package
  for package in $(packages_of "$@"); do
    # Another package may provide pkg-config and others: then dpkg knows no package of that name.
    [ "$(dpkg-query -W -f='${db:Status-Status}' "$package" 2>/dev/null)" = installed ] || printf '%s\n' "$package"
  done
}

# as_root COMMAND...: runs it as root, by sudo if the user is not root.
as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  elif command -v sudo >/dev/null; then
    sudo "$@"
  else
    fail "root is needed to run: $* ; run it as root, or install sudo"
  fi
}

apt_install() {
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "$@"
}

# candidates PACKAGE...: prints the packages that apt can install and their versions, one per line.
candidates() {
  apt-cache policy "$@" 2>/dev/null |
    awk '/^[^ ].*:$/ { name = substr($1, 1, length($1) - 1) } $1 == "Candidate:" && $2 != "(none)" { print name, $2 }'
}

# have_candidates PACKAGE...: whether apt's lists know all of them.
have_candidates() { [ "$(candidates "$@" | wc -l)" = $# ]; }

# ensure_packages install|no-install GROUP...: returns if all packages are installed, else ends the script.
ensure_packages() {
  local mode=$1 missing
  shift
  if ! command -v dpkg-query >/dev/null; then
    say "this is not Debian: assuming that the packages in scripts/packages.txt are installed"
    return
  fi
  mapfile -t missing < <(missing_packages "$@")
  [ "${#missing[@]}" -gt 0 ] || return 0
  [ "$mode" = install ] || fail "these packages are missing: ${missing[*]} (--no-install was given)"
  say "installing ${missing[*]}"
  # Package lists that are absent or too old are fetched once. Lists that suffice are not fetched again.
  if ! have_candidates "${missing[@]}" || ! apt_install "${missing[@]}"; then
    as_root apt-get update -q || fail "apt-get update failed; its messages are above"
    apt_install "${missing[@]}" || fail "apt-get could not install: ${missing[*]}"
  fi
}
