#!/usr/bin/env python3
"""Compares the shared library with the description in tests/consumer/abi.xml.xz: programs linked to that must still
run.

usage: abi_test.py LIBRARY [--write]     --write: writes a new description; read the output of abidiff, then commit

The description has the exported functions and their types, including the offset of each member, without details that
the public headers hide. It is written by abidw, and compared by abidiff: https://sourceware.org/libabigail/
"""

import lzma
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
DESCRIPTION = FOLDER / "abi.xml.xz"
INCLUDE = FOLDER.parent.parent / "include"
OPTIONS = ("--exported-interfaces-only", "--drop-private-types", "--no-show-locs", "--no-comp-dir-path", "--no-corpus-path")


def described(library):
    with tempfile.NamedTemporaryFile(suffix=".xml") as file:
        subprocess.run(["abidw", *OPTIONS, "--headers-dir", INCLUDE, "--out-file", file.name, library], check=True)
        return pathlib.Path(file.name).read_text(encoding="utf-8")


def difference(before, after):
    """The output of abidiff for two descriptions, and whether they differ."""
    with tempfile.TemporaryDirectory() as folder:
        files = [pathlib.Path(folder, name) for name in ("before.xml", "after.xml")]
        for file, text in zip(files, (before, after)):
            file.write_text(text, encoding="utf-8")
        ran = subprocess.run(["abidiff", "--no-show-relative-offset-changes", *files], capture_output=True, text=True)
        return ran.stdout + ran.stderr, ran.returncode != 0


@unittest.skipUnless(shutil.which("abidw") and shutil.which("abidiff"), "abigail-tools is not installed")
class Abi(unittest.TestCase):
    binary = None

    @classmethod
    def setUpClass(cls):
        cls.built = described(cls.binary)

    def test_is_as_described(self):
        text, differs = difference(lzma.decompress(DESCRIPTION.read_bytes()).decode(), self.built)
        self.assertFalse(differs, f"if that is intended: {sys.argv[0]} LIBRARY --write\n{text[:4000]}")

    def test_has_types_and_not_only_names(self):
        self.assertRegex(self.built, r"<class-decl name='Completion' size-in-bits='\d+'")

    def test_a_missing_function_is_found(self):
        symbol = re.search(r"<elf-symbol name='(\w*RDMAChannel\w*post_write\w*)'[^>]*/>", self.built)
        text, differs = difference(self.built, self.built.replace(symbol.group(), ""))
        self.assertTrue(differs)
        self.assertIn("post_write", text)

    def test_a_value_that_has_changed_is_found(self):
        changed = re.sub(r"(<enumerator name='kTimeout' value=')\d+", r"\g<1>99", self.built)
        self.assertNotEqual(changed, self.built)
        text, differs = difference(self.built, changed)
        self.assertTrue(differs)
        self.assertIn("kTimeout", text)


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3) or sys.argv[2:] not in ([], ["--write"]):
        sys.exit(__doc__.strip())
    Abi.binary = sys.argv[1]
    if sys.argv[2:]:
        DESCRIPTION.write_bytes(lzma.compress(described(Abi.binary).encode(), preset=9 | lzma.PRESET_EXTREME))
    else:
        unittest.main(argv=sys.argv[:1])
