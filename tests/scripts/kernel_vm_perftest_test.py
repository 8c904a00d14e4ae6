#!/usr/bin/env python3
"""bench/kernel_vm_perftest.py judges results as documented, and never waits forever. No virtual machine."""

import contextlib
import importlib.util
import io
import pathlib
import unittest

PATH = pathlib.Path(__file__).resolve().parent.parent.parent / "bench" / "kernel_vm_perftest.py"
SPEC = importlib.util.spec_from_file_location("kernel_vm_perftest", PATH)
bench = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(bench)


def judged(test, library, perftest):
    """Whether the result is good, and the output."""
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        good = bench.judge({("send", test, 8): (library, perftest)})
    return good, printed.getvalue()


class Judgement(unittest.TestCase):
    def test_a_difference_within_either_spread_is_noise(self):
        for library, perftest in (([10, 11, 12], [10, 10, 10]), ([11, 11, 11], [9, 10, 11])):
            good, printed = judged("lat", library, perftest)
            self.assertTrue(good)
            self.assertIn(" within the noise", printed)
            self.assertIn(" 1.100 ", printed)
            self.assertIn("1 of 1 within the noise, 0 slower", printed)

    def test_a_larger_slowdown_is_reported_with_both_spreads(self):
        good, printed = judged("lat", [20, 21, 20], [10, 10, 11])
        self.assertFalse(good)
        self.assertRegex(printed, r"20\.0 +10\.0 us +2\.000 +5\.0% +10\.0%  SLOWER, beyond the noise")

    def test_more_bandwidth_is_faster(self):
        self.assertIn("faster, beyond", judged("bw", [2, 2, 2], [1, 1, 1])[1])
        self.assertTrue(judged("bw", [2, 2, 2], [1, 1, 1])[0])
        self.assertFalse(judged("bw", [1, 1, 1], [2, 2, 2])[0])


class Turns(unittest.TestCase):
    def test_each_is_first_every_other_time(self):
        order = []
        bench.run_of_ours = lambda program, op, test: order.append("library") or dict.fromkeys(bench.SIZES, 1.0)
        bench.perftest_run = lambda op, test, size: order.append("perftest") or 2.0
        with contextlib.redirect_stderr(io.StringIO()):
            figures = bench.measure("program", 2)
        half = len(order) // 2
        self.assertEqual((order[0], order[half]), ("library", "perftest"))
        self.assertEqual(figures["read", "bw", 4096], ([1.0, 1.0], [2.0, 2.0]))


class Bounds(unittest.TestCase):
    def assert_gives_up(self, words, seconds, why):
        with bench.started(words) as process, self.assertRaisesRegex(SystemExit, why):
            bench.wait_for_text(process, r"port (\d+)\n", seconds)

    def test_a_printed_line_is_waited_for(self):
        with bench.started(["sh", "-c", "printf 'port 1'; printf '23\\n'; cat"]) as process:
            self.assertEqual(bench.wait_for_text(process, r"port (\d+)\n", 20).group(1), "123")

    def test_a_silent_or_ended_process_is_reported(self):
        self.assert_gives_up(["tail", "-f", "/dev/null"], 0.1, "within 0.1 s from tail -f")
        self.assert_gives_up(["echo", "no such device"], 20, "no such device")

    def test_a_server_that_does_not_listen_is_reported(self):
        with bench.started(["tail", "-f", "/dev/null"]) as process, self.assertRaisesRegex(SystemExit, "does not listen"):
            bench.wait_for_listener(process, 1, 0.1)
        with bench.started(["echo", "no GID"]) as process, self.assertRaisesRegex(SystemExit, "no GID"):
            bench.wait_for_listener(process, 1, 20)

    def test_a_program_that_takes_too_long_is_reported(self):
        bench.SECONDS, before = 0.1, bench.SECONDS
        self.addCleanup(setattr, bench, "SECONDS", before)
        with self.assertRaisesRegex(SystemExit, "not finished after 0.1 s: tail"):
            bench.run(["tail", "-f", "/dev/null"])


if __name__ == "__main__":
    unittest.main()
