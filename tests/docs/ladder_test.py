#!/usr/bin/env python3
"""The examples form a ladder, are as short as the documents say, and match the code in the documents."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ECHO = ("kSlots", "Echo", "serve")
MESSAGES = ("kOptions", "add_channel", "open", "receive", "serve", "ask")
RUNGS = sorted((ROOT / "example").glob("[0-9][0-9]_*.cc"))


def text_of(number):
    return next(path for path in RUNGS if path.name.startswith(f"{number:02}_")).read_text(encoding="utf-8")


def code_lines(text):
    """Lines that are neither empty nor only a comment, without trailing comments."""
    return [line for line in re.sub(r"(^|\s+)//.*", "", text, flags=re.M).splitlines() if line.strip()]


def parts(text, *names):
    """The code lines of top-level definitions, each from the line with its name to the line with its last bracket."""
    count = 0
    text = "\n".join(code_lines(text))
    for name in names:
        begin = re.search(rf"^\S[^\n;]*\b{name}\b", text, re.M).start()
        definition = text[begin:]
        end = re.match(r".*;$|(?s:.*?)^\};?$", definition, re.M).end()
        count += definition[:end].count("\n") + 1
    return count


class Ladder(unittest.TestCase):
    def test_there_are_twelve_rungs(self):
        self.assertEqual([int(path.name[:2]) for path in RUNGS], list(range(1, 13)))

    def test_each_begins_with_what_it_shows(self):
        for path in RUNGS:
            with self.subTest(path.name):
                lines = path.read_text(encoding="utf-8").splitlines()
                self.assertTrue(lines[0].startswith("// ") and lines[1].startswith("// "))
                self.assertNotIn("// ", lines[3])

    def test_a_write_with_a_notification_is_short(self):
        self.assertLessEqual(parts(text_of(1), "write_to"), 14)
        self.assertLessEqual(parts(text_of(1), "serve"), 20)
        self.assertLessEqual(len(code_lines(text_of(1))), 40)

    def test_an_echo_server_is_short(self):
        self.assertLessEqual(parts(text_of(5), *ECHO), 40)
        self.assertLessEqual(parts(text_of(5), "ask"), 25)

    def test_questions_and_answers_are_short(self):
        self.assertLessEqual(parts(text_of(10), *MESSAGES), 45)

    def test_the_readme_has_these_lengths_and_all_rungs(self):
        readme = (ROOT / "example/README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| [^|]*\((\d+)\) \| (\d+)(?:, both)? \| (\d*) ?\| (\d+)", readme, re.M)
        expected = [(1, parts(text_of(1), "serve"), parts(text_of(1), "write_to")),
                    (5, parts(text_of(5), *ECHO), parts(text_of(5), "ask")),
                    (10, parts(text_of(10), *MESSAGES), "")]
        self.assertEqual(rows, [(f"{number:02}", str(server), str(client), str(len(code_lines(text_of(number)))))
                                for number, server, client in expected])
        shared = len(code_lines((ROOT / "example/two_ends.h").read_text(encoding="utf-8")))
        self.assertIn(f"`two_ends.h`, {shared} lines", readme)
        self.assertEqual(re.findall(r"^\| \[(\w+)\]", readme, re.M), [path.stem for path in RUNGS])

    def test_the_documents_show_what_is_compiled_and_run(self):
        for document, number in (("README.md", 1), ("docs/streams.md", 9)):
            with self.subTest(document):
                shown = re.search(r"```cpp\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.S).group(1)
                self.assertEqual(shown, text_of(number))


if __name__ == "__main__":
    unittest.main()
