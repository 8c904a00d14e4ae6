#!/usr/bin/env python3
"""contract_tests --hardware: skipped only if no device was requested; a missing device is a failure."""

import os
import subprocess
import unittest

CONTRACT_TESTS = os.environ["RDMACOMM_CONTRACT_TESTS"]


def run(**devices):
    """Runs it with those variables and no others that name a device."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("RDMACOMM_TEST_")}
    return subprocess.run([CONTRACT_TESTS, "--hardware", "--gtest_filter=none"], env={**environment, **devices},
                          capture_output=True, text=True, timeout=30, check=False)


class HardwareMode(unittest.TestCase):
    def assert_refused(self, result, device):
        self.assertEqual(result.returncode, 1, result.stdout)
        self.assertEqual(len(result.stderr.splitlines()), 1, result.stderr)
        self.assertIn(f'no RDMA device "{device}" here', result.stderr)

    def test_without_a_device_it_is_skipped(self):
        result = run()
        self.assertEqual((result.returncode, result.stdout), (77, "skipped: RDMACOMM_TEST_DEVICE is not set\n"))

    def test_missing_device(self):
        self.assert_refused(run(RDMACOMM_TEST_DEVICE="absent0"), "absent0")

    def test_missing_peer_device(self):
        self.assert_refused(run(RDMACOMM_TEST_DEVICE="soft0", RDMACOMM_TEST_PEER_DEVICE="absent1"), "absent1")

    def test_existing_devices(self):
        result = run(RDMACOMM_TEST_DEVICE="soft0")
        self.assertEqual((result.returncode, result.stderr), (0, ""))
        self.assertIn("contract suite on soft0 and soft0", result.stdout)


if __name__ == "__main__":
    unittest.main()
