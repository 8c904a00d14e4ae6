#!/usr/bin/env python3
"""softdev-run --check finds each wrong use of the verbs in mistakes.cc, names its place and its rule, and reports nothing
for the correct twin.

usage: check_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run and of the program mistakes.
"""

import os
import re
import subprocess
import tempfile
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
BIN = os.environ.get("RDMACOMM_BIN", "")
RUN = os.path.join(BIN, "softdev-run")
FOUND = 99
SECONDS = 60

# The option of a case; without one, --check is enough.
OPTIONS = {"receive_touched": "pages", "send_touched": "pages", "read_touched": "pages", "wr_id_reused": "wr-ids",
           "capacity": "capacity", "destroyed_with_receives": "ends"}
# Cases whose mistake must cause a second report.
WITH_OTHERS = {"rkey_deregistered": {"remote-access-refused"}}


def run(*arguments, environment=None):
    return subprocess.run([RUN, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False,
                          env={**os.environ, **(environment or {})}, stdin=subprocess.DEVNULL)


def reports(text):
    """The reports in an output: a list of (rule, lines)."""
    found = []
    for line in text.splitlines():
        match = re.fullmatch(r"check\[\d+\] (.*)", line)
        if match is None:
            continue
        begin = re.match(r"([a-z-]+): ", match[1])
        if begin:
            found.append((begin[1], [match[1]]))
        elif found and match[1].startswith("  "):
            found[-1][1].append(match[1])
    return found


def first_stack(lines):
    """The frames of the first stack of a report."""
    frames = []
    for line in lines[1:]:
        if re.fullmatch(r" {4}\S+ at \S+:\d+", line):
            frames.append(line.strip())
        elif frames:
            break
    return frames


def marked_lines(file):
    """The lines of a source that each rule must name: {rule: {(function, line)}}."""
    marked = {}
    function = None
    with open(os.path.join(HERE, file), encoding="utf-8") as source:
        for number, line in enumerate(source, 1):
            begin = re.match(r"(?:\[\[.*\]\] )?[a-z]\w* (\w+)\(.*\) \{$", line)
            function = begin[1] if begin else function
            mark = re.search(r";.*// ([a-z-]+)$", line)
            if mark:
                marked.setdefault(mark[1], set()).add((function, number))
    return marked


class Programs(unittest.TestCase):
    program = "mistakes"
    source = "mistakes.cc"

    @classmethod
    def setUpClass(cls):
        done = subprocess.run([os.path.join(BIN, cls.program)], capture_output=True, text=True, check=False)
        cls.cases = done.stdout.split()

    def option(self, case):
        return "--check=" + OPTIONS[case] if case in OPTIONS else "--check"

    def test_each_mistake_is_found(self):
        marked = marked_lines(self.source)
        self.assertGreater(len(self.cases), 4)
        for case in self.cases:
            with self.subTest(case):
                done = run(self.option(case), os.path.join(BIN, self.program), case, "bad")
                self.assertEqual(done.returncode, FOUND, done.stderr)
                found = reports(done.stderr)
                rules = {rule for rule, places in marked.items() if any(self.belongs(f, case) for f, _ in places)}
                self.assertEqual(len(rules), 1, (case, rules))
                rule = rules.pop()
                self.assertEqual({each for each, _ in found}, {rule} | WITH_OTHERS.get(case, set()), done.stderr)
                lines = next(lines for each, lines in found if each == rule)
                frames = " ".join(first_stack(lines))
                places = [f"{self.source}:{number}" for f, number in marked[rule] if self.belongs(f, case)]
                self.assertTrue(any(re.search(re.escape(place) + r"\b", frames) for place in places),
                                (places, done.stderr))
                self.assertRegex("\n".join(lines), r"\n  rule: ibv_\w+\(3\)")
                self.assertRegex(done.stderr, r"\d+ found.*; exit status 99 instead of 0\n$")

    @staticmethod
    def belongs(function, case):
        return function == case or (case, function) in {("stack_memory", "send_a_variable")}

    def test_nothing_is_reported_for_the_correct_twins(self):
        for case in self.cases:
            with self.subTest(case):
                done = run(self.option(case), os.path.join(BIN, self.program), case, "good")
                self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", ""))


if __name__ == "__main__":
    unittest.main()
