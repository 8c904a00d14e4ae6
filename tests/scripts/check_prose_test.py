#!/usr/bin/env python3
"""scripts/check_prose.py finds each kind of sentence that it is there for, and lets plain ones pass."""

import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).resolve().parent.parent.parent / "scripts" / "check_prose.py"

# For each advice of the checker, sentences for which it must be given.
HARD = {
    "name the thing that acts": ["Who connects gets a channel.", "It is for whoever waits.", "The one that polls takes it."],
    "name the thing instead": ["What comes is kept.", "Returns the rest of what was posted."],
    "'if' for a condition": ["Default: 10, where it is empty.", "Where there is no device, soft0 is used."],
    "'except'": ["All but the last are sent.", "It is free but for one lock."],
    "'of' at the head": ["Of large messages the peer reads the rest."],
    "name the number": ["After so many polls it sleeps.", "It takes as many as fit."],
    "plain possessive": ["It is a buffer of the peer's."],
    "'peer', 'local' or 'remote'": ["The other side closes it.", "This side has ended it."],
    "another verb": ["It goes by TCP.", "No memory is had for it."],
    "begin with the subject": ["There is a queue."],
    "private vocabulary": ["A stranger knocks.", "Each second it gives a sign of life."],
    "words": ["One two three four five six seven eight nine ten one two three four five six seven eight nine ten "
              "one two three four five six seven eight nine ten eleven."],
}
PLAIN = [
    "The peer sends a heartbeat each second.",
    "If the queue is full, the call returns kSendQueueFull.",
    "Keeps at most 16 completions, because their handlers allocate.",
    "On completion `local` may be reused, except on iWARP.",
    "Unlike poll(), it waits.",
]


class CheckProse(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = pathlib.Path(folder.name)
        subprocess.run(["git", "init", "-q", self.root], check=True)
        (self.root / "scripts").mkdir()

    def write(self, path, text):
        (self.root / path).parent.mkdir(parents=True, exist_ok=True)
        (self.root / path).write_text(text, encoding="utf-8")

    def check(self, *arguments):
        ended = subprocess.run([sys.executable, TOOL, *arguments, self.root], capture_output=True, text=True, check=False)
        return ended.returncode, ended.stdout + ended.stderr

    def test_each_kind_is_found_in_comments_and_documents(self):
        for what, sentences in HARD.items():
            for sentence in sentences:
                for path, text in (("a.cc", f"// {sentence}\nint a;\n"), ("a.h", f"int a;  ///< {sentence}\n"),
                                   ("a.md", f"# Title\n\n{sentence}\n"), ("a.py", f'"""{sentence}"""\n'), ("a.sh", f"# {sentence}\n")):
                    with self.subTest(sentence=sentence, path=path):
                        self.write(path, text)
                        status, said = self.check()
                        self.assertEqual(status, 1, said)
                        self.assertIn(what, said)
                        (self.root / path).unlink()

    def test_plain_sentences_pass(self):
        self.write("a.cc", "".join(f"// {sentence}\n" for sentence in PLAIN))
        self.write("a.md", "\n\n".join(PLAIN) + "\n")
        status, said = self.check()
        self.assertEqual((status, said), (0, "check_prose.py: 0 findings in 0 files\n"))

    def test_code_is_no_prose(self):
        self.write("a.cc", 'const char* text = "where_it_is"; // NOLINT\n#include "of the peer\'s file.h"\n')
        self.write("a.md", "```\nThere is a stranger\n```\n\nRun `what where it is` now.\n")
        self.assertEqual(self.check()[0], 0)

    def test_each_kind_is_found_in_texts_that_programs_print(self):
        for what, sentences in HARD.items():
            for sentence in sentences:
                with self.subTest(sentence=sentence):
                    middle = len(sentence) // 2
                    self.write("src/a.cc", f'f("{sentence[:middle]}"  // continued\n  "{sentence[middle:]}");\n')
                    status, said = self.check()
                    self.assertEqual(status, 1, said)
                    self.assertIn(what, said)
        (self.root / "src/a.cc").unlink()

    def test_texts_of_scripts_are_read(self):
        for path, text in (("a.sh", 'fail "{}"\n'), ("a.sh", "cat <<'END'\nusage: a\n{}\nEND\n"), ("a.py", 'print("{}")\n'),
                           ("a.cmake", 'message(STATUS "{}")\n')):
            with self.subTest(path=path, text=text):
                self.write(path, text.format("There is a stranger at the door."))
                self.assertEqual(self.check()[0], 1)
                self.write(path, text.format("A client without a name has connected."))
                self.assertEqual(self.check()[0], 0)

    def test_texts_of_tests_are_data(self):
        self.write("tests/a_test.cc", 'const char* text = "There is a stranger at the door.";\n')
        self.assertEqual(self.check()[0], 0)

    def test_a_sentence_is_found_over_the_ends_of_lines(self):
        self.write("a.cc", "// It waits for the\n// other side.\nint a;\n")
        self.assertEqual(self.check()[0], 1)

    def test_long_lines_of_documents_are_found_and_tables_may_have_them(self):
        self.write("a.md", "word " * 25 + "\n")
        self.assertEqual(self.check()[0], 1)
        self.write("a.md", "| " + "word. " * 25 + "|\n")
        self.assertEqual(self.check()[0], 0)

    def test_numbers_of_the_baseline_only_fall(self):
        self.write("a.cc", "// There is one.\n\n// There is another.\n")
        self.assertEqual(self.check("--lower")[0], 0)
        self.assertEqual(self.check()[0], 0)
        self.write("a.cc", "// There is one.\n")
        status, said = self.check()
        self.assertEqual(status, 1)
        self.assertIn("fewer than its 2: run check_prose.py --lower", said)
        self.assertEqual(self.check("--lower")[0], 0)
        self.write("a.cc", "// There is one.\n\n// There is another.\n")
        status, said = self.check("--lower")
        self.assertEqual(status, 1)
        self.assertIn("2 findings; it may have 1", said)
        self.write("a.cc", "int a;\n")
        self.assertEqual(self.check("--lower")[0], 0)
        self.write("a.cc", "// There is one.\n")
        self.assertEqual(self.check("--lower")[0], 1, "an empty list allows nothing")


if __name__ == "__main__":
    unittest.main()
