#!/usr/bin/env python3
"""README.md is up to date: its program is the compiled one, and its files and commands exist."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


class Readme(unittest.TestCase):
    def test_an_older_standard_is_named_as_the_cause(self):
        compiler = os.environ.get("CXX") or "c++"
        ran = subprocess.run([compiler, "-std=c++17", "-fsyntax-only", "-Wfatal-errors", f"-I{ROOT}/include", "-x", "c++",
                              ROOT / "include/rdmacomm/rdmacomm.h"], capture_output=True, text=True, check=False)
        self.assertNotEqual(ran.returncode, 0)
        self.assertIn("rdmacomm needs C++20: compile with -std=c++20", ran.stderr)
        self.assertEqual(ran.stderr.count("error:"), 1, ran.stderr)

    def test_the_picture_of_the_layers_matches_the_code(self):
        drawn = subprocess.run([ROOT / "scripts/draw_layers.py"], capture_output=True, text=True, check=True,
                               env=os.environ | {"PYTHONDONTWRITEBYTECODE": "1"}).stdout
        self.assertEqual(drawn, (ROOT / "docs/layers.svg").read_text(encoding="utf-8"),
                         "the code has changed: scripts/draw_layers.py --write, and look at it")

    def test_the_files_it_names_exist(self):
        names = re.findall(r"\b((?:docs|scripts|tools|example|third_party)/[\w./-]*\w|[A-Z]+\.md)\b", README)
        self.assertGreater(len(names), 8)
        for name in names:
            with self.subTest(name):
                self.assertTrue((ROOT / name).exists())

    def test_the_programs_it_names_have_the_options_it_names(self):
        sources = "".join(path.read_text(encoding="utf-8") for folder in ("tools", "example") for path in (ROOT / folder).rglob("*.cc"))
        for option in re.findall(r"--([a-z][\w-]*)=", README) + ["verify"]:
            with self.subTest(option):
                self.assertRegex(sources, rf'DEFINE_\w+\(\s*{option.replace("-", "_")},')


if __name__ == "__main__":
    unittest.main()
