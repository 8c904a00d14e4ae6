"""Each file of misuse/*.cc compiles, and fails to compile with any of its mistakes.

A mistake is the code between "#ifdef NAME" and "#endif". The line "// NAME: TEXT" in the file says what the compiler's
error must contain, so that the file cannot fail for another reason.
"""

import os
import pathlib
import re
import subprocess
import unittest

FOLDER = pathlib.Path(__file__).resolve().parent
ROOT = pathlib.Path(os.environ.get("RDMACOMM_ROOT", FOLDER.parent.parent))
COMPILER = os.environ.get("CXX", "c++")


def compiled(source, *flags):
    """The exit status and the messages of the compiler."""
    command = [COMPILER, "-std=c++20", "-fsyntax-only", "-Wall", "-Wextra", "-Werror", f"-I{ROOT / 'include'}", *flags, source]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, env={**os.environ, "LC_ALL": "C"})
    # Without the source lines that the compiler prints below its messages.
    return ended.returncode, "\n".join(line for line in ended.stderr.splitlines() if re.search(r"(error|note|warning): ", line))


class Misuse(unittest.TestCase):
    def test_no_file_has_a_mistake_that_is_not_tried(self):
        for source in sorted(FOLDER.glob("*.cc")):
            text = source.read_text(encoding="utf-8")
            told = set(re.findall(r"^// ([A-Z_]+): .+$", text, re.M))
            self.assertEqual(told, set(re.findall(r"^#ifdef ([A-Z_]+)$", text, re.M)), source.name)
            self.assertTrue(told, source.name)

    def test_without_a_mistake_each_file_compiles(self):
        for source in sorted(FOLDER.glob("*.cc")):
            with self.subTest(source.name):
                status, messages = compiled(source)
                self.assertEqual(status, 0, messages)

    def test_with_any_mistake_no_file_compiles(self):
        for source in sorted(FOLDER.glob("*.cc")):
            for name, expected in re.findall(r"^// ([A-Z_]+): (.+)$", source.read_text(encoding="utf-8"), re.M):
                with self.subTest(f"{source.name} {name}"):
                    status, messages = compiled(source, f"-D{name}", "-Wno-unused-variable")
                    self.assertNotEqual(status, 0, "it compiles")
                    self.assertRegex(messages, expected)


if __name__ == "__main__":
    unittest.main()
