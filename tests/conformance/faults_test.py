#!/usr/bin/env python3
"""Programs of perftest, and of this project, on a soft0 that is told to fail. Each fault of docs/faults.md has a case here.

usage: faults_test.py [TEST...]

RDMACOMM_BIN names the folder of softdev-run.
"""

import os
import re
import signal
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))

from foreign_programs_test import BIN, RUN, SECONDS, ForeignProgramTest, hold_ports  # noqa: E402

MESSAGES = 1000
# The numbers of ibv_wc_status, which perftest prints. tests/softdev/faults/ tests all statuses, events and calls.
STATUSES = {"LOC_PROT_ERR": 4, "REM_ACCESS_ERR": 10, "RETRY_EXC_ERR": 12, "RNR_RETRY_EXC_ERR": 13}
REFUSED = {"open_device": "Couldn't get context for the device", "reg_mr": "Couldn't allocate MR", "create_qp": "Unable to create QP",
           "modify_qp": "Failed to modify QP to INIT, ret=11"}


class FaultsTest(ForeignProgramTest):
    def run_faulty(self, plan, *arguments):
        """Runs a server, and a client with a plan. Returns the status of the client, its output and the server."""
        (port,) = hold_ports(self)
        words = (*arguments, "-d", "soft0", "-x", "3", "-F", "-p", str(port))
        server = self.start(*words)
        self.wait_until_listening(server, port)
        client = self.start(*words, "localhost", run_options=("--faults", plan))
        out, _ = client.communicate(timeout=SECONDS)
        return client.returncode, out, server

    def write(self, plan, *options):
        return self.run_faulty(plan, "ib_write_bw", "-n", str(MESSAGES), "-s", "64", *options)

    def expect_failure(self, plan, words, *options):
        status, out, _ = self.write(plan, *options)
        self.assertEqual(status, 1, out)
        self.assertRegex(out, words)
        self.expect_applied(out)
        return out

    def expect_success(self, plan, *arguments):
        status, out, server = self.run_faulty(plan, *arguments)
        self.assertEqual(status, 0, out)
        self.output(server)
        self.expect_applied(out)
        return out

    def expect_applied(self, out):
        """Each rule has applied, and the first line has the plan."""
        self.assertRegex(out, r'(?m)^soft0: faults "seed \d+; ')
        counts = re.findall(r"(?m)soft0: \w+, process \d+: this fault applied (\d+) times?: \S", out)
        self.assertTrue(counts, out)
        self.assertNotIn("0", counts, out)


class Perftest(FaultsTest):
    def test_fail(self):
        for word, number in STATUSES.items():
            with self.subTest(word):
                self.expect_failure(f"at 100 fail {word} opcode=WRITE", f"Failed status {number}:")

    def test_receiver_not_ready(self):
        self.expect_success("every 100 rnr 3 opcode=SEND", "ib_send_bw", "-n", str(MESSAGES), "-s", "64")

    def test_delay_and_slow(self):
        out = self.expect_success("delay 1ms qp=1", "ib_read_lat", "-n", "100", "-s", "8")
        fastest = float(re.search(r"(?m)^ 8 +100 +([\d.]+)", out).group(1))
        self.assertGreaterEqual(fastest, 1000)
        self.expect_success("5% slow 1us..100us", "ib_write_bw", "-n", str(MESSAGES), "-s", "64")

    def test_reorder(self):
        self.expect_success("20% reorder 16", "ib_write_bw", "-n", str(MESSAGES), "-s", "64", "-q", "4")
        self.expect_success("reorder 16", "ib_send_bw", "-n", str(MESSAGES), "-s", "64", "-q", "4")

    def test_lost_datagrams(self):
        """The receiver counts for a second. Without a time it would wait for the lost messages."""
        self.expect_success("10% lose", "ib_send_bw", "-c", "UD", "-D", "1", "-s", "64")

    def test_link_that_comes_up_again(self):
        self.expect_success("at 100 link down 100ms", "ib_write_bw", "-n", str(MESSAGES), "-s", "64")

    def test_link_that_stays_down(self):
        self.expect_failure("at 100 link down 1000s", "Failed status 12:", "-u", "8")

    def test_events(self):
        self.expect_success("at 2 event PORT_ERR; at 3 event SQ_DRAINED", "ib_write_bw", "-n", "10", "-s", "64")

    def test_device_fatal(self):
        self.expect_failure("at 100 device fatal", "Couldn't post send")

    def test_overrun(self):
        self.expect_failure("at 100 overrun", "poll CQ failed -1")

    def test_process_ends(self):
        status, out, server = self.write("at 100 die")
        self.assertEqual(status, -signal.SIGKILL, out)
        self.expect_applied(out)
        server.communicate(timeout=SECONDS)
        self.assertEqual(server.returncode, 1)

    def test_peer_ends(self):
        status, out, server = self.write("at 100 die peer")
        self.assertEqual(status, 1, out)
        self.assertIn("Failed status 12:", out)
        server.communicate(timeout=SECONDS)
        self.assertEqual(server.returncode, -signal.SIGKILL)

    def test_process_stops_for_a_time(self):
        for peer in ("", "peer"):
            self.expect_success(f"at 100 freeze {peer} 100ms", "ib_write_bw", "-n", str(MESSAGES), "-s", "64")

    def test_refused_calls(self):
        for call, words in REFUSED.items():
            with self.subTest(call):
                status, out, _ = self.write(f"at 1 refuse {call} EAGAIN")
                self.assertEqual(status, 1, out)
                self.assertIn(words, out)
                self.expect_applied(out)

    def test_the_printed_line_repeats_the_run(self):
        def counts_of(plan):
            out = self.expect_success(plan, "ib_write_bw", "-n", str(MESSAGES), "-s", "64", "-q", "2")
            return re.search(r'(?m)^soft0: faults "(.*)"', out).group(1), re.findall(r"fault applied (\d+) time", out)

        line, counts = counts_of("7% slow 1us..20us; 3% delay 1us")
        self.assertEqual(counts_of(line), (line, counts))


class Launcher(FaultsTest):
    def test_help(self):
        out = self.run_alone("true", run_options=("--faults=help",))
        for word in ("fail STATUS", "rnr N", "link down TIME", "refuse CALL", "opcode=NAME", "seed N"):
            self.assertIn(word, out)
        self.assertTrue(all(len(line) <= 80 for line in out.splitlines()))

    def test_a_plan_that_is_wrong(self):
        status, out, _ = self.write("at 1 lose; at 2 fial GENERAL_ERR")
        self.assertEqual(status, 1)
        self.assertRegex(out, r'(?m)^soft0: cannot open soft0: the environment variable RDMACOMM_SOFT0_FAULTS has no plan: rule 2, '
                              r'character 17: "fial" cannot be used here; possible: fail, rnr, .*\(Invalid argument\)$')

    def test_a_plan_in_a_file(self):
        with tempfile.NamedTemporaryFile("w", suffix=".faults") as file:
            file.write("# two rules\nseed 12\nat 100 fail GENERAL_ERR  # the status 21\n\nat 1 event GID_CHANGE program=ib_write_bw\n")
            file.flush()
            status, out, _ = self.write("@" + file.name)
        self.assertEqual(status, 1, out)
        self.assertIn('soft0: faults "seed 12; at 100 fail GENERAL_ERR; at 1 event GID_CHANGE program=ib_write_bw"', out)
        self.assertIn("Failed status 21:", out)

    def test_a_file_that_cannot_be_read(self):
        process = self.start("true", run_options=("--faults=@/nonexistent/plan",))
        out, _ = process.communicate(timeout=SECONDS)
        self.assertEqual((process.returncode, out), (1, "softdev-run: --faults @/nonexistent/plan: cannot read the file /nonexistent/plan\n"))

    def test_all_processes_have_the_same_seed(self):
        process = self.start("sh", "-c", "ibv_devinfo -d soft0; ibv_devinfo -d soft0", run_options=("--faults=1% reorder 2",))
        out, _ = process.communicate(timeout=SECONDS)
        lines = re.findall(r"(?m)^soft0: faults .*", out)
        self.assertEqual(len(lines), 2, out)
        self.assertEqual(len(set(lines)), 1, out)

    def test_a_rule_that_never_applied_is_visible(self):
        out = self.run_alone("ibv_devinfo", "-d", "soft0", run_options=("--faults=at 7 device fatal; at 1 fail GENERAL_ERR program=x",))
        self.assertEqual(len(re.findall(r"ibv_devinfo, process \d+: this fault applied 0 times: at ", out)), 2, out)

    def test_no_rules_are_no_faults(self):
        for plan in ("", ";", "# nothing"):
            out = self.run_alone("ibv_devinfo", "-d", "soft0", run_options=("--faults", plan))
            self.assertNotIn("soft0: ", out)


class OwnPrograms(FaultsTest):
    """The programs of this project use the library, which has soft0 in it."""

    def run_ping_pong(self, plan):
        environment = {**os.environ, "RDMACOMM_SOFT0_FAULTS": plan}
        process = subprocess.run([os.path.join(BIN, "ping_pong_test"), "--iterations=200", "--device=soft0"], env=environment,
                                 stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=SECONDS, check=False)
        return process.returncode, process.stdout + process.stderr

    @unittest.skipUnless(os.path.exists(os.path.join(BIN, "ping_pong_test")), "no programs were built")
    def test_errors_of_the_library(self):
        for plan, words in (
                ("at 10 fail REM_ACCESS_ERR", r"(?i)does not (allow|permit)|remote access|refused"),
                ("at 10 fail RETRY_EXC_ERR", r"(?i)no answer|retr"),
                ("at 10 device fatal", r"(?i)device"),
                ("at 1 refuse reg_mr EAGAIN", "(?i)register"),
                ("at 1 refuse create_qp ENOSPC", "(?i)queue pair"),
                ("at 1 lsoe", "RDMACOMM_SOFT0_FAULTS has no plan: rule 1")):
            with self.subTest(plan):
                status, out = self.run_ping_pong(plan)
                self.assertNotEqual(status, 0, out)
                self.assertRegex(out, words)

    @unittest.skipUnless(os.path.exists(os.path.join(BIN, "ping_pong_test")), "no programs were built")
    def test_faults_that_the_library_does_not_notice(self):
        status, out = self.run_ping_pong("seed 3; 5% delay 1us..100us; 5% slow 1us; 5% rnr 1; 10% reorder 4; at 3 event GID_CHANGE")
        self.assertEqual(status, 0, out)
        self.assertIn('faults "seed 3; 5% delay 1us..100us; ', out)


if __name__ == "__main__":
    unittest.main()
