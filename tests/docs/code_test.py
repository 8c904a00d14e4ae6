#!/usr/bin/env python3
"""The C++ code in the documents is unchanged, adjacent lines of a program or test that is compiled and run."""

import re
import textwrap
import unittest

from documents import DOCUMENTS, ROOT, blocks_of, without_fenced

PROJECT = (ROOT / "example/tutorial/hello/CMakeLists.txt").read_text(encoding="utf-8")
# The code that the documents may show: the examples, which docs.tutorial, docs.examples and programs.examples run, and the tests.
SOURCES = ["\n" + path.read_text(encoding="utf-8") for folder in ("example", "tests")
           for path in sorted((ROOT / folder).rglob("*")) if path.suffix in (".cc", ".h")]
# An indented line that can only be C++: those blocks are not checked, so there may be none.
INDENTED_CODE = re.compile(r"^ {4,}(?!\|)[^\n`]*(?:;|\) \{)(?: +//[^\n]*)?$", re.M)


def is_excerpt(block):
    """Whether the lines are adjacent lines of a source. The block may have a smaller margin than the source."""
    lines = textwrap.dedent(block).splitlines()
    for source in SOURCES:
        start = 0
        while (start := source.find(lines[0], start)) >= 0:
            begin = source.rfind("\n", 0, start) + 1
            end = begin
            for _ in lines:
                end = source.find("\n", end) + 1 or len(source)
            if textwrap.dedent(source[begin:end]).rstrip("\n").splitlines() == lines:
                return True
            start += 1
    return False


class Code(unittest.TestCase):
    def test_each_block_is_an_excerpt(self):
        count = 0
        for document in DOCUMENTS:
            for block in blocks_of("cpp", document.read_text(encoding="utf-8")):
                count += 1
                with self.subTest(document=document.name, block=block):
                    self.assertTrue(is_excerpt(block), "these are not adjacent lines of one file below example/ or tests/")
        self.assertGreater(count, 25)

    def test_each_line_of_cmake_is_in_the_project_that_is_built(self):
        for document in DOCUMENTS:
            for block in blocks_of("cmake", document.read_text(encoding="utf-8")):
                for line in block.splitlines():
                    with self.subTest(document=document.name, line=line):
                        self.assertIn(line.replace("echo", "hello") + "\n", PROJECT)

    def test_a_changed_line_is_found(self):
        for document in DOCUMENTS:
            for block in blocks_of("cpp", document.read_text(encoding="utf-8")):
                lines = block.splitlines(keepends=True)
                changed = "".join(lines[:-1] + [lines[-1][:-1] + "~\n"])
                self.assertFalse(is_excerpt(changed), changed)

    def test_no_code_is_outside_of_such_blocks(self):
        for document in DOCUMENTS:
            text = without_fenced(document.read_text(encoding="utf-8"))
            with self.subTest(document.name):
                self.assertEqual(INDENTED_CODE.findall(text), [])


if __name__ == "__main__":
    unittest.main()
