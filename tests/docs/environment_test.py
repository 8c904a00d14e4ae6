#!/usr/bin/env python3
"""docs/soft_device.md lists the environment variables that the device reads. Programs with more rights than their
user read none of them. The document lists the exceptions."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
SOURCES = [path for folder in ("src", "include", "tools", "example") for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".h", ".cc")]


def text(path):
    return path.read_text(encoding="utf-8")


class Environment(unittest.TestCase):
    def setUp(self):
        section = text(ROOT / "docs/soft_device.md").split("\n## Environment variables\n")[1].split("\n## ")[0]
        self.rows = dict(re.findall(r"^\| `(\w+)` \|.*\| (yes|no) \|$", section, re.M))

    def test_every_variable_and_no_other(self):
        named = {name for path in SOURCES if "softdev" in path.parts or path.name == "softdev.h" for name in re.findall(r'"(RDMACOMM_SOFT0_\w+)"', text(path))}
        self.assertGreater(len(named), 3)
        self.assertEqual(set(self.rows), named)

    def test_programs_with_more_rights_read_the_documented_variables(self):
        plain = [call for path in SOURCES for call in re.findall(r"\bgetenv\(([^)]+)\)", text(path)) if call != "3"]
        constants = dict(re.findall(r'(k\w+Variable) = "(\w+)"', text(ROOT / "include/rdmacomm/softdev.h")))
        self.assertEqual([constants.get(name, name) for name in plain], [name for name, read in self.rows.items() if read == "yes"])


if __name__ == "__main__":
    unittest.main()
