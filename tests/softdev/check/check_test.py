#!/usr/bin/env python3
"""softdev-run --check finds each wrong use of the verbs in mistakes.cc and predecessors.cc, and names its place and its
rule. It reports nothing for the correct twins, and nothing for the programs of habits.cc.

usage: check_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run and of these programs.
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
           "capacity": "capacity", "destroyed_with_receives": "ends", "thread_sleeps_unarmed": "sleeps"}
# Cases whose mistake must cause a second report.
WITH_OTHERS = {"rkey_deregistered": {"remote-access-refused"}, "leak": {"context-leak"},
               "leaked_queue_pairs": {"context-leak"}, "leaked_registrations": {"context-leak"}}


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


class Programs:
    """Runs the cases of a program."""

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
                frames = " ".join(" ".join(first_stack(lines)) for each, lines in found if each == rule)
                places = [f"{self.source}:{number}" for f, number in marked[rule] if self.belongs(f, case)]
                self.assertTrue(any(re.search(re.escape(place) + r"\b", frames) for place in places),
                                (places, done.stderr))
                for _, lines in found:
                    self.assertRegex("\n".join(lines), r"\n  rule: ibv_\w+\(3\)")
                self.assertRegex(done.stderr, r"\d+ found.*; exit status 99 instead of 0\n$")

    @staticmethod
    def belongs(function, case):
        return function == case or (case, function) == ("stack_memory", "send_a_variable")

    def test_nothing_is_reported_for_the_correct_twins(self):
        for case in self.cases:
            with self.subTest(case):
                done = run(self.option(case), os.path.join(BIN, self.program), case, "good")
                self.assertEqual((done.returncode, done.stderr, done.stdout), (0, "", ""))



class Mistakes(Programs, unittest.TestCase):
    program = "check_mistakes"
    source = "mistakes.cc"


class Predecessors(Programs, unittest.TestCase):
    """The bugs that other libraries have had."""
    program = "check_predecessors"
    source = "predecessors.cc"


class Habits(unittest.TestCase):
    program = os.path.join(BIN, "check_habits")

    def test_nothing_is_reported(self):
        cases = subprocess.run([self.program], capture_output=True, text=True, check=False).stdout.split()
        self.assertGreater(len(cases), 4)
        for case in cases:
            for option in ("--check", "--check=pages"):
                with self.subTest(case, option=option):
                    done = run(option, self.program, case)
                    status = 42 if case == "own_fault_handler" else 0
                    self.assertEqual((done.returncode, done.stderr), (status, ""))


class Process(unittest.TestCase):
    """Where reports are written, and how processes end."""
    mistakes = os.path.join(BIN, "check_mistakes")

    def folder(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        return made.name

    def test_without_the_option_nothing_is_loaded(self):
        done = run("cat", "/proc/self/maps")
        self.assertNotIn("librdmacomm_check", done.stdout)
        self.assertIn("librdmacomm_check", run("--check", "cat", "/proc/self/maps").stdout)
        done = run(self.mistakes, "send_buffer_changed", "bad")
        self.assertEqual((done.returncode, done.stderr), (0, ""))

    def test_reports_are_written_to_a_file(self):
        folder = self.folder()
        log = os.path.join(folder, "log-%p")
        done = run("--check", "--check-log", log, self.mistakes, "leak", "bad")
        self.assertEqual((done.returncode, done.stderr), (FOUND, ""))
        (name,) = os.listdir(folder)
        with open(os.path.join(folder, name), encoding="utf-8") as file:
            text = file.read()
        self.assertRegex(name, r"log-\d+")
        self.assertIn(f"check[{name[4:]}] leak: ", text)

    def test_reports_can_be_suppressed(self):
        file = os.path.join(self.folder(), "expected")
        for text, status in (("leak check_mistakes\n", 0), ("leak check_* main\n", 0), ("leak * libnone.so\n", FOUND),
                             ("overlap *\n", FOUND)):
            with self.subTest(text):
                with open(file, "w", encoding="utf-8") as stream:
                    stream.write("# a comment\ncontext-leak *\n" + text)
                done = run("--check", "--check-suppressions", file, self.mistakes, "leak", "bad")
                self.assertEqual(done.returncode, status, done.stderr)
                if status == 0:
                    self.assertRegex(done.stderr, r"^check\[\d+\] 0 found, \d+ suppressed\n$")

    def test_wrong_suppressions_are_named(self):
        file = os.path.join(self.folder(), "expected")
        with open(file, "w", encoding="utf-8") as stream:
            stream.write("leek *\n")
        done = run("--check", "--check-suppressions", file, self.mistakes, "leak", "bad")
        self.assertEqual(done.returncode, FOUND)
        self.assertIn(f'{file}:1: not "RULE PROGRAM [PLACE]": leek *', done.stderr)

    def test_a_process_without_findings_keeps_its_status(self):
        done = run("--check", "sh", "-c", "exit 7")
        self.assertEqual((done.returncode, done.stderr), (7, ""))

    def test_wrong_options(self):
        for options, words in ((("--check=paiges",), "--check=paiges: possible are pages, wr-ids, capacity, ends and sleeps"),
                               (("--check=",), "--check= needs a word"),
                               (("--check-log=x",), "--check-log and --check-suppressions need --check"),
                               (("--check", "--check-suppressions=/nonexistent"), "/nonexistent: cannot be read")):
            with self.subTest(options):
                done = run(*options, "true")
                self.assertEqual(done.returncode, 1)
                self.assertIn(words, done.stderr)
                self.assertEqual(len(done.stderr.splitlines()), 1)

    def test_the_document_shows_a_report(self):
        """Except for the numbers, which differ each time."""
        def plain(text):
            return re.sub(r"0x[0-9a-f]+|\d+", "N", " ".join(re.sub(r"(?m)^check\[\d+\]", "", text).split()))
        with open(os.path.join(HERE, "..", "..", "..", "docs", "check.md"), encoding="utf-8") as file:
            shown = re.search(r"compares it -->\n```\n(.*?)```\n", file.read(), re.DOTALL)
        done = run("--check", self.mistakes, "send_buffer_changed", "bad")
        self.assertEqual(plain(done.stderr), plain(shown[1]))

    def test_the_document_has_all_rules(self):
        top = os.path.join(HERE, "..", "..", "..")
        with open(os.path.join(top, "src", "softdev", "check", "rules.cc"), encoding="utf-8") as file:
            rules = re.findall(r'(?m)^    \{"([a-z-]+)",', file.read())
        with open(os.path.join(top, "docs", "check.md"), encoding="utf-8") as file:
            text = file.read()
        self.assertGreater(len(rules), 20)
        self.assertEqual([rule for rule in rules if f"`{rule}`" not in text], [])

    def test_without_libdw_frames_have_no_lines(self):
        """The names of functions and libraries are still there."""
        folder = self.folder()
        with open(os.path.join(folder, "libdw.so.1"), "w", encoding="utf-8") as file:
            file.write("not a library")
        done = run("--check", self.mistakes, "leak", "bad", environment={"LD_LIBRARY_PATH": folder})
        self.assertEqual(done.returncode, FOUND)
        self.assertRegex(done.stderr, r"check_mistakes\+0x[0-9a-f]+")


if __name__ == "__main__":
    unittest.main()
