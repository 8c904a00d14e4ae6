#!/usr/bin/env python3
"""Some test of tests/contract/ uses each row of docs/conformance.md: an unused row would be meaningless."""

import pathlib
import re
import unittest

CONTRACT = pathlib.Path(__file__).resolve().parent.parent / "contract"


def rows(kind):
    """The enumerators of Trait or Fault, with that prefix: "Trait::kAcknowledges"."""
    text = (CONTRACT / "device_traits.h").read_text(encoding="utf-8")
    body = re.search(rf"enum class {kind}[^{{]*\{{(.*?)\}};", text, re.S).group(1)
    return [f"{kind}::{name}" for name in re.findall(r"^\s*(k\w+),", body, re.M)]


def tests():
    """All files that query properties: the tests, and their shared fixtures."""
    sources = [path for path in sorted(CONTRACT.glob("*.cc")) if path.name != "device_traits.cc"]
    return "\n".join(path.read_text(encoding="utf-8") for path in sources)


class ConformanceRows(unittest.TestCase):
    def test_each_is_used_by_a_test(self):
        for kind, at_least in (("Trait", 15), ("Fault", 8)):
            names = rows(kind)
            self.assertGreater(len(names), at_least)
            unused = [name for name in names if not re.search(rf"\b{name}\b", tests())]
            self.assertEqual(unused, [], "rows of device_traits.cc that no test uses")


if __name__ == "__main__":
    unittest.main()
