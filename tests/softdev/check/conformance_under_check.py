#!/usr/bin/env python3
"""Programs of other projects and of this one under softdev-run --check: they work, and nothing is reported except the
suppressed reports of docs/check.md.

usage: conformance_under_check.py

RDMACOMM_BIN names the folder of the programs. Without RDMACOMM_CONFORMANCE=full a part of the conformance tests runs.
"""

import os
import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
CONFORMANCE = HERE.parent.parent / "conformance"
BIN = pathlib.Path(os.environ.get("RDMACOMM_BIN", "")).absolute()
FULL = os.environ.get("RDMACOMM_CONFORMANCE") == "full"
SECONDS = 900

PART = [("foreign_programs_test.py", "PingPong.test_rc"), ("rdmacm_test.py", "RdmacmPrograms.test_rping"),
        ("fabrics_test.py", "Fabrics.test_libfabric"), ("device_files_test.py", "Ucx.test_sizes")]
ALL = [("foreign_programs_test.py", "Devices", "PingPong", "Perftest", "Qperf"),
       ("rdmacm_test.py", "RdmacmPrograms", "RdmacmDatagrams"), ("fabrics_test.py", "Fabrics"), ("iser_test.py",),
       ("qemu_test.py",), ("device_files_test.py", "Diagnostics", "Counters", "Ucx", "Mpi")]

WRAPPER = """#!/bin/sh
exec {run} --check --check-log={folder}/report-%p "$@"
"""


class UnderCheck(unittest.TestCase):
    """Each test has a folder with the programs, in which softdev-run has --check."""

    def setUp(self):
        made = tempfile.TemporaryDirectory()
        self.addCleanup(made.cleanup)
        self.folder = pathlib.Path(made.name)
        for program in BIN.iterdir():
            if program.name != "softdev-run":
                (self.folder / program.name).symlink_to(program)
        self.run_path = self.folder / "softdev-run"
        self.run_path.write_text(WRAPPER.format(run=BIN / "softdev-run", folder=self.folder))
        self.run_path.chmod(0o755)

    def reports(self):
        """Reports that are not suppressed."""
        texts = [path.read_text() for path in self.folder.glob("report-*")]
        return "".join(text for text in texts if not re.search(r"\] 0 found, \d+ suppressed\n$", text))

    def test_other_projects(self):
        for script, *tests in ALL if FULL else PART:
            with self.subTest(script=script, tests=tests):
                done = subprocess.run([sys.executable, CONFORMANCE / script, *tests], capture_output=True, text=True,
                                      timeout=SECONDS, check=False, env={**os.environ, "RDMACOMM_BIN": str(self.folder)})
                self.assertEqual(done.returncode, 0, done.stderr + self.reports())
                self.assertEqual(self.reports(), "")

    def run_own(self, *arguments):
        done = subprocess.run([self.run_path, *arguments], capture_output=True, text=True, timeout=SECONDS, check=False,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.reports())
        self.assertEqual(self.reports(), "")

    def test_own_programs(self):
        for arguments in (("ping_pong_test", "--iterations=50"), ("ping_pong_test", "--iterations=50", "--polling=event"),
                          ("lat_bw_benchmark", "--ops=write,send", "--sizes=8", "--iterations=100"),
                          ("mesh_comm_service", "--local=3", "--total=1M")):
            with self.subTest(arguments):
                self.run_own(str(BIN / arguments[0]), *arguments[1:])

    def test_examples(self):
        programs = self.folder / "examples"
        programs.mkdir()
        expected = self.folder / "expected"
        expected.write_text("remote-access-refused 12_errors_and_ends  # it shows this error\n")
        for example in BIN.glob("[0-9][0-9]_*"):
            wrapper = programs / example.name
            wrapper.write_text(WRAPPER.format(run=f"{BIN}/softdev-run --check-suppressions={expected}", folder=self.folder)
                               .replace('"$@"', f'{example} "$@"'))
            wrapper.chmod(0o755)
        self.assertGreater(len(list(programs.iterdir())), 10)
        done = subprocess.run([sys.executable, HERE.parent.parent / "programs" / "examples_test.py"], capture_output=True,
                              text=True, timeout=SECONDS, check=False, env={**os.environ, "RDMACOMM_BIN": str(programs)})
        self.assertEqual(done.returncode, 0, done.stderr + self.reports())
        self.assertEqual(self.reports(), "")

    def test_pipes_and_copies(self):
        source, copy = self.folder / "source", self.folder / "copy"
        source.write_bytes(os.urandom(3 << 20))
        command = (f"cd {self.folder} && {{ ./softdev-run {BIN}/rdma_recv --listen=127.0.0.1 --port=0 "
                   f"--timeout=30 > copy 2> log & }} && for i in $(seq 300); do "
                   "port=$(sed -n 's/.*listening on port \\([0-9]*\\).*/\\1/p' log); [ -z \"$port\" ] || break; "
                   f"sleep 0.1; done; ./softdev-run {BIN}/rdma_send 127.0.0.1:$port < source && wait $!")
        done = subprocess.run(["sh", "-c", command], capture_output=True, text=True, timeout=SECONDS, check=False)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr + self.reports())
        self.assertEqual(copy.read_bytes(), source.read_bytes())
        self.assertEqual(self.reports(), "")


if __name__ == "__main__":
    unittest.main()
