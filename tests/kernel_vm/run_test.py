#!/usr/bin/env python3
"""Failures of tests/kernel_vm/run, boot.py and suite.py. No virtual machine: scripts play QEMU and apt."""

import os
import pathlib
import select
import signal
import subprocess
import sys
import tempfile
import unittest
import unittest.mock

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import suite  # noqa: E402


class ScriptTest(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.environment = {**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}",
                            "RDMACOMM_KERNEL_VM_CACHE": str(self.folder / "cache")}

    def play(self, program, script):
        """Replaces a program by a script."""
        path = self.folder / program
        path.write_text("#!/bin/bash\n" + script, encoding="utf-8")
        path.chmod(0o755)
        return path

    def run_script(self, script, *arguments):
        return subprocess.run([HERE / script, *arguments], env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def assert_refused(self, result, *parts):
        """Expects status 125 and one line that contains all `parts`."""
        self.assertEqual(result.returncode, 125, result.stdout + result.stderr)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        for part in parts:
            self.assertIn(part, result.stderr)


class ScenariosThatFail(unittest.TestCase):
    """The number of times that a scenario is run, and its result."""

    def outcome_of(self, *failures):
        """Simulates runs in which these numbers of tests fail."""
        def run(*_):
            tally = suite.Tally()
            count = next(runs)
            tally.passed = 5 - count
            for number in range(count):
                tally.fail(f"failure {number}")
            return tally

        runs = iter(failures)
        with unittest.mock.patch.object(suite, "run_scenarios", run):
            tally = suite.run_scenarios_twice_at_most("path", "rxe", {})
        self.assertEqual(list(runs), [], "it was not run as often as that")
        return tally

    def test_never(self):
        tally = self.outcome_of(0)
        self.assertEqual((tally.passed, tally.failed, tally.unstable), (5, 0, []))

    def test_once(self):
        tally = self.outcome_of(2, 0)
        self.assertEqual((tally.passed, tally.failed, tally.unstable), (5, 0, ["failure 0", "failure 1"]))

    def test_twice(self):
        tally = self.outcome_of(1, 2)
        self.assertEqual((tally.passed, tally.failed, tally.unstable), (3, 2, []))


class Arguments(ScriptTest):
    def test_invalid_arguments_are_refused(self):
        self.assert_refused(self.run_script("run", "--devise=rxe"), "unknown option --devise=rxe", "--help")
        self.assert_refused(self.run_script("run", "true"), "unknown option true", "after --")
        self.assert_refused(self.run_script("run", "--device=mlx5"), "--device=mlx5", "rxe, siw or all")
        self.assert_refused(self.run_script("run", "--kernel=new"), "--kernel=new", "6.1")
        self.assert_refused(self.run_script("run", "--timeout=0"), "--timeout=0", "at least 1")
        self.assert_refused(self.run_script("run", "--timeout=1h"), "--timeout=1h", "seconds")
        self.assert_refused(self.run_script("run", "--"), "no command")

    def test_help(self):
        for script in ("run", "prepare", "boot.py", "suite.py", "guest/main", "guest/pair"):
            with self.subTest(script):
                result = self.run_script(script, "--help")
                self.assertEqual((result.returncode, result.stderr), (0, ""))
                self.assertIn("usage:", result.stdout)

    def test_missing_packages_are_named(self):
        self.play("dpkg-query", 'case "${@: -1}" in qemu-system-x86) echo not-installed ;; *) echo installed ;; esac')
        self.assert_refused(self.run_script("run", "--no-install", "--", "true"), "missing: qemu-system-x86")

    def test_kernel_that_apt_does_not_know(self):
        self.play("dpkg-query", "echo installed")
        self.play("apt-cache", "")
        self.play("apt-get", "")
        self.play("sudo", "")
        self.assert_refused(self.run_script("run", "--kernel=9.9", "--", "true"), "no package of kernel 9.9")

    def test_download_that_fails(self):
        self.play("dpkg-query", "echo installed")
        self.play("apt-cache", """
case $1 in
  pkgnames) echo linux-image-9.9.0-1-amd64; echo linux-image-9.9.0-1-cloud-amd64 ;;
  policy) shift; for name in "$@"; do printf '%s:\\n  Candidate: 9.9-1\\n' "$name"; done ;;
esac""")
        self.play("apt-get", "echo no network >&2; exit 1")
        result = self.run_script("run", "--kernel=9.9", "--", "true")
        self.assertEqual(result.returncode, 125)
        self.assertIn("no network", result.stderr)
        self.assertIn("could not download", result.stderr.splitlines()[-1])
        self.assertEqual([path.name for path in (self.folder / "cache").iterdir()], ["lock"])


class Guests(ScriptTest):
    """boot.py with simulated guests, which find the results folder in QEMU's arguments."""

    RESULTS = 'results=$(sed -n "s/^local,id=results,path=\\([^,]*\\),.*/\\1/p" < <(printf "%s\\n" "$@")); cd "$results"\n'

    def setUp(self):
        super().setUp()
        self.play("tsc_khz", "echo 2000000")
        self.results = self.folder / "results"

    def arguments(self, *options):
        return [HERE / "boot.py", f"--kernel-folder={self.folder}", f"--results={self.results}", *options, "--", "true"]

    def boot(self, guest, *options):
        self.play("qemu-system-x86_64", self.RESULTS + guest)
        return subprocess.run(self.arguments(*options), env=self.environment, stdin=subprocess.DEVNULL,
                              capture_output=True, text=True, timeout=60, check=False)

    def test_output_and_status_are_passed_on(self):
        result = self.boot("echo first > log; touch up; echo second >> log; echo 7 > status; exec sleep 600")
        self.assertEqual((result.returncode, result.stdout), (7, "first\nsecond\n"))
        self.assertIn("exit status 7", result.stderr)
        self.assertIn(str(self.results), result.stderr)

    def test_variables_of_tests_are_passed_on_and_no_others(self):
        self.environment |= {"RCL_MAX_VLOG_LEVEL": "2", "RDMACOMM_TEST_ROUNDS": "1 %", "EDITOR": "none"}
        self.boot("touch up log; echo 0 > status; exec sleep 600")
        job = (self.results / "job").read_text()
        self.assertIn("export RCL_MAX_VLOG_LEVEL=2\n", job)
        self.assertIn("export RDMACOMM_TEST_ROUNDS='1 %'\n", job)
        self.assertNotIn("EDITOR", job)

    def test_guest_that_does_not_boot_is_started_twice(self):
        result = self.boot("echo 'Kernel panic - not syncing: no root' > console; exit 1")
        self.assertEqual(result.returncode, 125)
        self.assertIn("attempt 1 of 2): Kernel panic - not syncing: no root", result.stderr)
        self.assertIn("attempt 2 of 2", result.stderr)
        self.assertTrue((self.results / "console.1").exists())

    def test_guest_that_boots_the_second_time(self):
        result = self.boot("[ -e console.1 ] || { touch console; exit 1; }; touch up log; echo 0 > status; exec sleep 600")
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("attempt 1 of 2", result.stderr)

    def test_qemu_that_does_not_start_names_the_reason(self):
        self.assertIn("no such machine", self.boot("echo no such machine >&2; exit 1").stderr)

    def test_guest_that_dies_is_no_failing_test(self):
        result = self.boot("touch up log; echo 'BUG: kernel NULL pointer dereference' > console; exit 0")
        self.assertEqual(result.returncode, 125)
        self.assertIn("died while the command ran: BUG: kernel NULL pointer dereference", result.stderr)

    def test_guest_that_gives_no_answer_in_time(self):
        result = self.boot("echo $$ > pid; touch up log; exec sleep 600", "--timeout=1", "--grace=1")
        self.assertEqual(result.returncode, 124)
        self.assertIn("no answer within 1 s", result.stderr)
        self.assert_gone()

    def test_warnings_of_the_kernel_are_reported(self):
        result = self.boot("touch up log; echo '[ 1.0] WARNING: CPU: 0 PID: 1 at rxe' > dmesg; echo 0 > status")
        self.assertEqual(result.returncode, 0)
        self.assertIn("the kernel complains: [ 1.0] WARNING: CPU: 0 PID: 1 at rxe", result.stderr)

    def test_signals_end_the_guest(self):
        for number, status in ((signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGKILL, -9)):
            with self.subTest(number.name):
                self.play("qemu-system-x86_64", self.RESULTS + "echo $$ > pid; touch up; echo ready > log; exec sleep 600")
                boot = subprocess.Popen(self.arguments(), env=self.environment, stdin=subprocess.DEVNULL,
                                        stdout=subprocess.PIPE, stderr=subprocess.PIPE)
                self.assertEqual(boot.stdout.readline(), b"ready\n")
                boot.send_signal(number)
                boot.communicate(timeout=30)
                self.assertEqual(boot.returncode, status)
                self.assert_gone()

    def assert_gone(self):
        """The guest ends with boot.py, which does not wait for it, so it may still exist for a moment."""
        try:
            descriptor = os.pidfd_open(int((self.results / "pid").read_text()))
        except ProcessLookupError:
            return
        ended, _, _ = select.select([descriptor], [], [], 20)
        os.close(descriptor)
        self.assertTrue(ended, "the guest goes on")


if __name__ == "__main__":
    unittest.main()
