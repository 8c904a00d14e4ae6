#!/usr/bin/env python3
"""The examples: their number, their lengths, and the documents that show their code."""

import pathlib
import re
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
ECHO = ("kSlots", "Echo", "serve")
MESSAGES = ("kOptions", "add_channel", "open", "receive", "serve", "ask")
EXAMPLES = sorted((ROOT / "example").glob("[0-9][0-9]_*.cc"))


def text_of(number):
    return next(path for path in EXAMPLES if path.name.startswith(f"{number:02}_")).read_text(encoding="utf-8")


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


class Examples(unittest.TestCase):
    def test_their_number_is_twelve(self):
        self.assertEqual([int(path.name[:2]) for path in EXAMPLES], list(range(1, 13)))

    def test_each_begins_with_its_subject(self):
        for path in EXAMPLES:
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

    def test_the_readme_has_all_examples_with_their_lengths(self):
        readme = (ROOT / "example/README.md").read_text(encoding="utf-8")
        rows = re.findall(r"^\| [^|]*\((\d+)\) \| (\d+)(?:, both)? \| (\d*) ?\| (\d+)", readme, re.M)
        expected = [(1, parts(text_of(1), "serve"), parts(text_of(1), "write_to")),
                    (5, parts(text_of(5), *ECHO), parts(text_of(5), "ask")),
                    (10, parts(text_of(10), *MESSAGES), "")]
        self.assertEqual(rows, [(f"{number:02}", str(server), str(client), str(len(code_lines(text_of(number)))))
                                for number, server, client in expected])
        shared = len(code_lines((ROOT / "example/two_ends.h").read_text(encoding="utf-8")))
        self.assertIn(f"`two_ends.h`, {shared} lines", readme)
        self.assertEqual(re.findall(r"^\| \[(\w+)\]", readme, re.M), [path.stem for path in EXAMPLES])

    def test_the_documents_show_the_code_that_is_compiled_and_run(self):
        for document, number in (("README.md", 1), ("docs/streams.md", 9)):
            with self.subTest(document):
                shown = re.search(r"```cpp\n(.*?)```", (ROOT / document).read_text(encoding="utf-8"), re.S).group(1)
                self.assertEqual(shown, text_of(number))


if __name__ == "__main__":
    unittest.main()
