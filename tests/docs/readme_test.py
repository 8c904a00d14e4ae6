#!/usr/bin/env python3
"""README.md is up to date: its program is the compiled one, and its files and commands exist."""

import os
import pathlib
import re
import subprocess
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


BIN = os.environ.get("RDMACOMM_BIN", "")


def without_values(text):
    """The lines of an output without its numbers, addresses and devices, which differ from run to run."""
    lines = [line if "verified" in line else re.sub(r"\S*\d\S*|\b(Ethernet|InfiniBand)\b|-(?= )", "N", line)
             for line in text.splitlines()]
    return [" ".join(line.split()) for line in lines]


class Readme(unittest.TestCase):
    @unittest.skipUnless(BIN, "RDMACOMM_BIN does not name the folder of the programs")
    def test_the_programs_print_what_it_shows(self):
        shown = re.findall(r"^```console\n\$ build/release/bin/([^\n]*)\n(.*?)```$", README, re.M | re.S)
        self.assertGreater(len(shown), 0)
        for command, output in shown:
            with self.subTest(command):
                ran = subprocess.run([f"{BIN}/{command}", "--device=soft0"], capture_output=True, text=True, check=True, timeout=120)
                self.assertEqual(without_values(ran.stdout), without_values(output))

    def test_a_changed_line_is_told_from_changed_values(self):
        self.assertEqual(without_values("p50 0.381 us\nsoft0 port 1\n"), without_values("p50  12 us\nmlx5_0 port 2\n"))
        self.assertNotEqual(without_values("SEND ok, 64 bytes"), without_values("SEND no, 64 bytes"))

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
