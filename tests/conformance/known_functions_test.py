#!/usr/bin/env python3
"""Whether soft0's library for LD_PRELOAD knows every function that libibverbs exports. A function that it does not know
would get objects of soft0, and would crash. Checks the installed libibverbs, and those of RDMACOMM_RDMA_CORE.

usage: known_functions_test.py

RDMACOMM_BIN names the folder of the library. RDMACOMM_RDMA_CORE: see releases_test.py.
"""

import fnmatch
import os
import subprocess
import unittest

HERE = os.path.dirname(os.path.abspath(__file__))
FRONT = os.path.join(os.environ.get("RDMACOMM_BIN", ""), "librdmacomm_softdev_preload.so")


def functions(library):
    """The names of the functions that a library exports, without versions."""
    listing = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    symbols = (line.split()[1:] for line in listing.splitlines())
    return {name.partition("@")[0] for kind, name in symbols if kind in "TWi"}


def known_patterns():
    with open(os.path.join(HERE, "known_functions.txt"), encoding="ascii") as file:
        lines = (line.strip() for line in file)
        return [line for line in lines if line and not line.startswith("#")]


def installed():
    """The libibverbs that the dynamic linker loads."""
    listing = subprocess.run(["/sbin/ldconfig", "-p"], check=True, capture_output=True, text=True).stdout
    return [line.split(" => ")[1] for line in listing.splitlines() if line.split()[0] == "libibverbs.so.1"][:1]


def libraries():
    trees = filter(None, os.environ.get("RDMACOMM_RDMA_CORE", "").split(":"))
    return installed() + [os.path.join(tree, "lib", "libibverbs.so.1") for tree in trees]


class KnownFunctionsTest(unittest.TestCase):
    def test_every_function_is_known(self):
        front, patterns = functions(FRONT), known_patterns()
        self.assertTrue(libraries())
        for library in libraries():
            with self.subTest(library):
                exported = functions(library)
                self.assertIn("ibv_open_device", exported)
                unknown = [name for name in sorted(exported - front)
                           if not any(fnmatch.fnmatchcase(name, pattern) for pattern in patterns)]
                self.assertEqual(unknown, [], "neither in src/softdev/preload nor in known_functions.txt")

    def test_no_function_is_both_served_and_listed(self):
        front = functions(FRONT)
        both = [pattern for pattern in known_patterns() if fnmatch.filter(front, pattern)]
        self.assertEqual(both, [])


if __name__ == "__main__":
    unittest.main()
