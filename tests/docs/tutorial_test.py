#!/usr/bin/env python3
"""docs/tutorial.md shows output that the programs really print. code_test.py looks at its code.

The word after ```console says how a block is run. A block with "server" starts a server. Its last lines may appear only
when its clients have ended.

Blocks with "client" belong to the last server before them. They are run with the port that this server has printed.

Blocks with "alone" need no server. All other blocks are not run.

In a block, "$ " begins a command, "^C" is Ctrl-C, and "Killed" is the end by SIGKILL. A line that begins with four
spaces continues the line before it."""

import os
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(__file__).resolve().parent.parent.parent
sys.path.insert(0, str(ROOT / "tests/programs"))
from documents import fenced
from program_runs import BIN, SLOW, Program  # pylint: disable=wrong-import-position

TUTORIAL = (ROOT / "docs/tutorial.md").read_text(encoding="utf-8")
PROJECT = ROOT / "example/tutorial/hello/CMakeLists.txt"
# The programs that the reader builds, and the examples that they are copies of.
OWN = {"build/hello": "01_hello", "build/echo": "05_many_clients"}
SECONDS = 30 * SLOW

# Parts of the output that differ from run to run: an expression for the shown text, and one for that of another run.
VARYING = [
    (r"listening on port \d+", r"listening on port \d+"),
    (r"127\.0\.0\.1:\d{4,5}\b", r"127\.0\.0\.1:\d+"),
    (r"\([\w.-]+, pid \d+; control QPN 0x\w+, data QPN 0x\w+\)", r"\([\w.-]+, pid \d+; control QPN 0x\w+, data QPN 0x\w+\)"),
    # The kernel resets the connection if the killed process had not yet read all incoming data.
    (r"closed the connection without notice: its process ended or crashed",
     r"(?:the connection failed: Connection reset by peer|closed the connection without notice: its process ended or crashed)"),
]
LOG_LINES = r"(?:[IW]\d{8} .*\n)*"


def blocks(language):
    """The texts of all fenced blocks of a language, each with the words after the language."""
    return [(words, text) for found, words, text in fenced(TUTORIAL) if found == language]


def pattern_of(lines):
    """An expression for output that has these lines, apart from varying parts and log lines."""
    expression = LOG_LINES
    for line in lines:
        rest = line
        while rest:
            found = [(match, new) for match, new in ((re.search(old, rest), new) for old, new in VARYING) if match]
            if not found:
                break
            match, new = min(found, key=lambda each: each[0].start())
            expression += re.escape(rest[: match.start()]) + new
            rest = rest[match.end():]
        expression += re.escape(rest) + "\n" + LOG_LINES
    return expression


def commands_of(block):
    """The commands of a block, each with the lines that it prints."""
    commands = []
    for line in block.replace("\n    ", " ").splitlines():
        if line.startswith("$ "):
            commands.append((line[2:], []))
        else:
            commands[-1][1].append(line)
    return commands


def scenes():
    """The blocks that are run: for each server its commands and those of its clients. Without a server the first is None."""
    found = []
    for words, text in blocks("console"):
        if words[:1] == ["server"]:
            found.append((commands_of(text), []))
        elif words[:1] == ["alone"]:
            found.append((None, [commands_of(text)]))
        elif words[:1] == ["client"]:
            found[-1][1].append(commands_of(text))
    return found


def runnable(command, port=""):
    """A command of the tutorial with the paths of the built programs, and with the server's port."""
    for own, example in OWN.items():
        command = command.replace(own, f"build/release/bin/{example}")
    command = command.replace("build/release/bin/", BIN + "/")
    return re.sub(r"(127\.0\.0\.1):\d{4,5}\b", rf"\1:{port}", command) if port else command


class Text(unittest.TestCase):
    def test_a_changed_line_of_output_is_found(self):
        line = '127.0.0.1:41601 (vm, pid 3; control QPN 0xf5, data QPN 0xf6) has disconnected: ok'
        other = 'I20261127 03:57:43.5 log line\n127.0.0.1:9999 (a-host, pid 4; control QPN 0x1, data QPN 0x2) has disconnected: ok\n'
        self.assertRegex(other, f"^{pattern_of([line])}$")
        for wrong in (other.replace("ok", "no"), other.replace("pid", "pit"), other + "more\n", other.replace("127.0", "128.0")):
            self.assertNotRegex(wrong, f"^{pattern_of([line])}\\Z")

    def test_the_project_is_the_one_that_is_built(self):
        project = PROJECT.read_text(encoding="utf-8")
        shown = [text for _, text in blocks("cmake")]
        of_hello = "".join(project.splitlines(keepends=True)[-2:])
        self.assertEqual(shown, [project, of_hello.replace("hello", "echo")])

    def test_the_packages_are_those_of_the_scripts(self):
        lines = (ROOT / "scripts/packages.txt").read_text(encoding="utf-8").splitlines()
        needed = [line.split()[0] for line in lines if re.match(r"[^#].* run$", line)]
        command = re.search(r"apt-get install ((?:.*\\\n)*.*)", TUTORIAL).group(1).replace("\\\n", "").split()
        self.assertEqual([word for word in command if not word.startswith("--")], needed)


@unittest.skipUnless(BIN, "RDMACOMM_BIN does not name the folder of the programs")
class Runs(unittest.TestCase):
    maxDiff = None

    def start(self, command):
        program = Program("bash", "-c", f"exec 2>&1; {command}", cwd=self.folder, start_new_session=True)
        self.addCleanup(self.end, program)
        return program

    def end(self, program):
        """Ends a program and its children, if the test has failed before they ended."""
        if program.process.poll() is None:
            os.killpg(program.pid, signal.SIGKILL)
        program.end()

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = folder.name

    def compare(self, output, lines):
        self.assertRegex(output, f"^{pattern_of(lines)}\\Z")

    def run_commands(self, commands, port="", when_it_waits=lambda: None):
        """Runs commands, and compares their output and exit status."""
        status = None
        for command, lines in commands:
            if command == "echo $?":
                self.assertEqual([str(status)], lines)
                continue
            program = self.start(runnable(command, port))
            if any(line.startswith("waiting") for line in lines):
                program.wait_for("(?m)^waiting.*\n", SECONDS)
                when_it_waits()
            status, output, _ = program.finish(SECONDS)
            self.compare(output, lines)

    def run_scene(self, server_commands, clients):
        command, lines = server_commands[0]
        end = lines[-1] if lines[-1] in ("^C", "Killed") else ""
        lines = [line for line in lines if line != end]
        server = self.start("exec " + runnable(command))
        port = server.wait_for(r"listening on port (\d+)\n", SECONDS).group(1)
        for commands in clients:
            self.run_commands(commands, port, server.kill if end == "Killed" else lambda: None)
        if end == "^C":
            server.wait_for(f"^{pattern_of(lines)}\\Z", SECONDS)
            server.kill(signal.SIGINT)
        status, output, _ = server.finish(SECONDS)
        self.compare(output, lines)
        expected = [text[0] for command, text in server_commands[1:] if command == "echo $?"] or ["0"]
        self.assertEqual(str(status), "-9" if end == "Killed" else expected[0])

    def test_each_scene_prints_the_lines_of_the_page(self):
        found = scenes()
        self.assertGreater(len(found), 6)
        for server, clients in found:
            with self.subTest(server or clients[0]):
                if server:
                    self.run_scene(server, clients)
                else:
                    self.run_commands(clients[0])

    def test_every_program_of_the_page_exists(self):
        for name in set(re.findall(r"build/release/bin/(\w+)", TUTORIAL)):
            with self.subTest(name):
                self.assertTrue(os.access(os.path.join(BIN, name), os.X_OK))

    def test_a_stream_copies_everything(self):
        server = self.start("exec " + runnable("build/release/bin/09_stream > copy.txt"))
        port = server.wait_for(r"listening on port (\d+)\n", SECONDS).group(1)
        client = self.start(runnable("seq 100000 | build/release/bin/09_stream 127.0.0.1:10000", port))
        self.assertEqual((client.finish(SECONDS)[0], server.finish(SECONDS)[0]), (0, 0))
        given = subprocess.run(["seq", "100000"], capture_output=True, check=True).stdout
        self.assertEqual(pathlib.Path(self.folder, "copy.txt").read_bytes(), given)


if __name__ == "__main__":
    unittest.main()
