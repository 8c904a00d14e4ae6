#!/usr/bin/env python3
"""docs/errors.md explains every code of errc.h, in the words that the library uses, and no other."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


def codes():
    """Every enumerator of Errc except kOk."""
    text = (ROOT / "include/rdmacomm/errc.h").read_text(encoding="utf-8")
    body = re.search(r"enum class Errc[^{]*\{(.*?)\};", text, re.S).group(1)
    names = re.findall(r"^\s*(k\w+)\s*(?:=\s*\w+)?,", body, re.M)
    return [name for name in names if name != "kOk"]


def sections():
    """The text below each "### kName"."""
    text = (ROOT / "docs/errors.md").read_text(encoding="utf-8")
    parts = re.split(r"^### (\w+)$", text, flags=re.M)[1:]
    return {name: re.split(r"^## ", body, flags=re.M)[0] for name, body in zip(parts[::2], parts[1::2])}


class Errors(unittest.TestCase):
    def test_every_code_has_a_section_and_every_section_a_code(self):
        self.assertGreater(len(codes()), 20)
        self.assertEqual(sorted(sections()), sorted(codes()))

    def test_in_the_order_of_the_header(self):
        self.assertEqual(list(sections()), codes())

    def test_each_names_cause_and_remedy(self):
        for name, body in sections().items():
            with self.subTest(name):
                self.assertRegex(body, r"(?m)^- \*\*Cause:\*\* \S")
                self.assertRegex(body, r"(?m)^- \*\*Do:\*\* \S")

    def test_each_quotes_the_text_of_the_library(self):
        source = (ROOT / "src/base/errc.cc").read_text(encoding="utf-8")
        for name, body in sections().items():
            with self.subTest(name):
                said = re.search(rf'Errc::{name}:\s*return "([^"]+)"', source).group(1)
                self.assertTrue(body.lstrip().startswith(f'"{said}"'), said)


if __name__ == "__main__":
    unittest.main()
