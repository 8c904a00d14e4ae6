#!/usr/bin/env python3
"""third_party/README.md explains the packages of scripts/packages.txt, and no others."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Packages(unittest.TestCase):
    def test_are_the_same(self):
        lines = (ROOT / "scripts/packages.txt").read_text(encoding="utf-8").splitlines()
        installed = [line.split()[0] for line in lines if line and not line.startswith("#")]
        explained = re.findall(r"^\| ([a-z][a-z0-9+-]+) \|", (ROOT / "third_party/README.md").read_text(encoding="utf-8"), re.M)
        self.assertEqual(sorted(explained), sorted(installed))

    def test_belong_to_groups_that_the_scripts_know(self):
        for line in (ROOT / "scripts/packages.txt").read_text(encoding="utf-8").splitlines():
            if line and not line.startswith("#"):
                self.assertIn(line.split()[1], ("run", "test", "ci", "vm", "docs", "browser", "bench"))


if __name__ == "__main__":
    unittest.main()
