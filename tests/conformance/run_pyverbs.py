"""Runs rdma-core's Python tests in a folder, and prints the result of each as JSON. For pyverbs_test.py.

usage: softdev-run python3 run_pyverbs.py FOLDER DEVICE
"""

import json
import os
import sys
import unittest


class Outcomes(unittest.TestResult):
    """By test: "passed", or the reason why it did not pass."""

    def __init__(self):
        super().__init__()
        self.passed = []
        self.needs_files = ()
        self.skipped_because = {}
        self.failed_because = {}

    def leave_out(self, device):
        """Skips the test that reads a file of the kernel, if the launcher does not provide this file."""
        if not os.path.exists(f"/sys/class/infiniband/{device}/ports/1/pkeys/0"):
            self.needs_files = ("test_get_pkey_index",)

    def startTest(self, test):
        super().startTest(test)
        if getattr(test, "_testMethodName", "") in self.needs_files:
            setattr(test, test._testMethodName, lambda: test.skipTest("soft0 has no files in /sys/class/infiniband"))

    def addSuccess(self, test):
        self.passed.append(test.id())

    def addSkip(self, test, reason):
        self.skipped_because[test.id()] = reason

    def addFailure(self, test, err):
        self.failed_because[test.id()] = self._exc_info_to_string(err, test)

    addError = addFailure

    def addSubTest(self, test, subtest, err):
        if err is not None:
            self.addFailure(subtest, err)


NODE = "/dev/infiniband/rdma_cm"


def tests_of(suite):
    for each in suite:
        if isinstance(each, unittest.TestSuite):
            yield from tests_of(each)
        else:
            yield each


def without_rdma_cm(suite, outcomes):
    """The tests. If rdma_cm has no device node, the tests of rdma_cm are skipped."""
    kept = unittest.TestSuite()
    for test in tests_of(suite):
        if test.id().startswith("tests.test_rdmacm") and not os.path.exists(NODE):
            outcomes.addSkip(test, f"There is no {NODE}")
        else:
            kept.addTest(test)
    return kept


def main():
    folder, device = sys.argv[1:3]
    sys.path[0:0] = [folder, os.path.join(folder, "tests")]
    sys.argv[1:] = ["--dev", device]
    from args_parser import parser
    parser.parse_args()
    outcomes = Outcomes()
    outcomes.leave_out(device)
    without_rdma_cm(unittest.defaultTestLoader.loadTestsFromName("tests"), outcomes).run(outcomes)
    json.dump({"passed": outcomes.passed, "skipped": outcomes.skipped_because, "failed": outcomes.failed_because},
              sys.__stdout__)


if __name__ == "__main__":
    main()
