#!/usr/bin/env python3
"""Other releases of rdma-core on soft0: their examples and Python tests, and perftest with their libibverbs.

usage: releases_test.py [TEST...]

RDMACOMM_RDMA_CORE names the releases, separated by colons: folders in which rdma-core was built, with its results in
bin/, lib/ and python/, in the folder of its sources (RELEASE/build). The tests are skipped if it is not set.
RDMACOMM_BIN names the folder of softdev-run.
"""

import os
import unittest

import foreign_programs_test as programs
import pyverbs_test

TREES = [tree for tree in os.environ.get("RDMACOMM_RDMA_CORE", "").split(":") if tree]


def pyverbs_case(folder):
    class Case(unittest.TestCase):
        def test_pyverbs(self):
            tests = os.path.join(os.path.dirname(folder), "tests")
            python = os.path.join(folder, "python")
            if not os.path.exists(os.path.join(python, "pyverbs", "__init__.py")):
                self.skipTest(f"{python} has no pyverbs: its build needs cython3 and python3-dev")
            outcomes = pyverbs_test.run(tests, PYTHONPATH=python, LD_LIBRARY_PATH=os.path.join(folder, "lib"))
            print(f"{folder}: {len(outcomes['passed'])} passed, {len(outcomes['skipped'])} skipped")
            self.assertEqual(outcomes["failed"], {}, "\n".join(outcomes["failed"].values()))
            self.assertGreater(len(outcomes["passed"]), len(outcomes["skipped"]))
    return Case


def load_tests(loader, _tests, _pattern):
    """The cases of foreign_programs_test.py and one for the Python tests, for each release."""
    suite = unittest.TestSuite()
    for tree in TREES:
        folder = os.path.abspath(tree)
        name = os.path.basename(os.path.dirname(folder))
        for case in (programs.Devices, programs.Lookups, programs.PingPong, programs.Perftest):
            suite.addTest(loader.loadTestsFromTestCase(type(f"{case.__name__} of {name}", (case,), {"tree": folder})))
        suite.addTest(loader.loadTestsFromTestCase(type(f"Pyverbs of {name}", (pyverbs_case(folder),), {})))
    if not TREES:
        suite.addTest(loader.loadTestsFromTestCase(NoReleases))
    return suite


class NoReleases(unittest.TestCase):
    def test_releases(self):
        print("no releases to test")  # for ctest
        self.skipTest("RDMACOMM_RDMA_CORE is not set")


if __name__ == "__main__":
    unittest.main()
