#!/usr/bin/env bash
# Builds the site: all documents, the API reference, a search. See --help.
set -euo pipefail
. "$(dirname "${BASH_SOURCE[0]}")/lib/common.sh"
. "$ROOT/scripts/lib/packages.sh"

usage() {
  cat <<'END'
usage: scripts/docs.sh [--no-install] [--check]

Makes a site of the documents in docs/, and an API reference of the headers in include/rdmacomm/:
  1. installs the Debian packages that are missing, with apt-get (as root, or by sudo);
  2. reads the headers with Doxygen; a public symbol without a comment is an error;
  3. makes the pages with Sphinx; a warning is an error;
  4. prints the page to open. The site needs no server, except for excerpts in the results of a search.

  --no-install   install nothing: say what is missing, and exit 1
  --check        look at all pages in headless Chromium: links, errors of the console, widths, colours, the search.
                 Screenshots of some pages are in build/docs/screenshots afterwards
  --help         this text
END
}

install=install
check=no
while [ $# -gt 0 ]; do
  case $1 in
    --no-install) install=no-install ;;
    --check) check=yes ;;
    -h | --help) usage; exit 0 ;;
    *) fail "unknown option $1; see --help" ;;
  esac
  shift
done

exec </dev/null
cd "$ROOT"
groups=(docs)
[ $check = no ] || groups+=(browser)
ensure_packages "$install" "${groups[@]}"
# The packages are for Debian's Python. The first python3 in PATH may be another one.
python=$(command -v /usr/bin/python3 || command -v python3)
command -v doxygen >/dev/null || fail "doxygen is missing; scripts/packages.txt lists what this script needs"
rm -rf build/docs && mkdir -p build/docs || fail "cannot write $ROOT/build/docs"

say "reading include/rdmacomm with Doxygen"
DOCS_PYTHON=$python doxygen docs/site/Doxyfile ||
  fail "Doxygen's messages are above: each public symbol needs a comment. Look for the names; the line numbers differ"
say "making the pages with Sphinx"
"$python" docs/site/stage.py "$ROOT/build/docs/source" || fail "the pages could not be written; the reason is above"
"$python" -m sphinx -q -W --keep-going -b html -d build/docs/doctrees -c docs/site build/docs/source build/docs/site ||
  fail "Sphinx's messages are above. Its line numbers are those of build/docs/source"
if [ $check = yes ]; then
  say "looking at the pages"
  "$python" tests/docs/site_test.py build/docs/site build/docs/doxygen/xml build/docs/screenshots
fi
say "built: open build/docs/site/index.html"
