#!/usr/bin/env python3
"""docs/streams.md shows the program that is compiled and run."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent


class Streams(unittest.TestCase):
    def test_its_program_is_the_example(self):
        shown = re.search(r"```cpp\n(.*?)```", (ROOT / "docs/streams.md").read_text(encoding="utf-8"), re.S).group(1)
        self.assertEqual(shown, (ROOT / "example/stream_bytes.cc").read_text(encoding="utf-8"))


if __name__ == "__main__":
    unittest.main()
