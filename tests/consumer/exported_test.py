#!/usr/bin/env python3
"""The shared library exports exactly the names in tests/consumer/exported.txt.

usage: exported_test.py LIBRARY [--write]     --write: writes a new list, to be read and committed
"""

import pathlib
import re
import subprocess
import sys
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
LIST = FOLDER / "exported.txt"
HEADERS = FOLDER.parent.parent / "include" / "rdmacomm"


def exported(library):
    """The names that other programs can link to, except names that a compiler adds."""
    listed = subprocess.run(["nm", "-DC", "--defined-only", library], capture_output=True, text=True, check=True).stdout
    names = {re.sub(r"\[abi:\w+\]", "", line.split(maxsplit=2)[2]) for line in listed.splitlines()}
    return sorted(names)


class Exported(unittest.TestCase):
    binary = None

    def test_matches_the_list(self):
        said = LIST.read_text(encoding="utf-8").splitlines()
        self.assertGreater(len(said), 200)
        names = exported(self.binary)
        why = f"if that is intended: {sys.argv[0]} LIBRARY --write"
        self.assertEqual([name for name in names if name not in said], [], f"exported, and not in the list; {why}")
        self.assertEqual([name for name in said if name not in names], [], f"in the list, and not exported; {why}")

    def test_has_only_names_of_public_headers(self):
        headers = "".join(path.read_text(encoding="utf-8") for path in sorted(HEADERS.glob("*.h")))
        for name in exported(self.binary):
            with self.subTest(name):
                match = re.match(r"(?:(?:vtable|typeinfo|typeinfo name) for )?rdmacomm::(?:detail::)?(\w+)", name)
                self.assertTrue(match, "it is not of namespace rdmacomm")
                self.assertRegex(headers, rf"\b{match.group(1)}(?: final)?(?: :[^;{{]*)? \{{|\b{match.group(1)}\(")


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__.strip())
    Exported.binary = sys.argv[1]
    if sys.argv[2:]:
        LIST.write_text("\n".join(exported(Exported.binary)) + "\n", encoding="utf-8")
    else:
        unittest.main(argv=sys.argv[:1])
