#!/usr/bin/env python3
"""The tests that tests/kernel_vm/run runs in the guest if it gets no command.

For each kind of device, all kinds at the same time: the contract tests, then each file of scenarios/ (unittest). A line
for each says how many tests passed, failed and were skipped, and why. The output of failed ones follows. A part with
failures runs a second time. Everything is kept in /run/results, too. Exit status 1: a part failed twice. To run one
part alone:
    tests/kernel_vm/run --device=rxe -- tests/kernel_vm/suite.py --only=programs rxe
"""

import argparse
import concurrent.futures
import os
import pathlib
import re
import subprocess
import sys
import time
import xml.etree.ElementTree

HERE = pathlib.Path(__file__).resolve().parent
BUILD = HERE.parent.parent / "build/dev"
RESULTS = pathlib.Path("/run/results")
# An emulated machine is slow. The tests' own limits are multiplied, and long loops are cut to these percent.
SLOWNESS, ROUNDS_PERCENT = "4", "10"
PART_SECONDS = 400


class Tally:
    """The results of one part. `reasons`: why tests were skipped. `failures`: text for the reader. `unstable`: the
    same for tests that failed and then passed when they ran again."""

    def __init__(self):
        self.passed = self.failed = self.skipped = 0
        self.reasons = {}
        self.failures = []
        self.unstable = []

    def skip(self, reason):
        self.skipped += 1
        self.reasons[reason] = self.reasons.get(reason, 0) + 1

    def fail(self, text):
        self.failed += 1
        self.failures.append(text)


def environment_for(kind):
    """The environment variables for the pair of that kind. guest/main sets the same ones for the first kind."""
    def pair(*words):
        return subprocess.run([HERE / "guest/pair", *words], check=True, capture_output=True, text=True).stdout.strip()

    return {**os.environ, "RDMACOMM_TEST_DEVICE": f"{kind}_a", "RDMACOMM_TEST_PEER_DEVICE": f"{kind}_b",
            "RDMACOMM_TEST_ADDRESS": pair("address", kind, "a"), "RDMACOMM_TEST_PEER_ADDRESS": pair("address", kind, "b"),
            "RDMACOMM_TEST_MAY_BREAK_LINK": pair("interface", kind, "a"), "RDMACOMM_TEST_ROUNDS": ROUNDS_PERCENT,
            "RDMACOMM_BIN": str(BUILD / "bin"), "RDMACOMM_SLOWNESS": SLOWNESS, "PYTHONDONTWRITEBYTECODE": "1",
            "PYTHONPATH": f"{HERE / 'scenarios'}:{HERE.parent / 'programs'}"}


def run_logged(words, log, environment):
    """Runs it. Returns its exit status (or "out of time") and all of its output."""
    with open(log, "wb") as file:
        try:
            status = subprocess.run(words, stdin=subprocess.DEVNULL, stdout=file, stderr=file, env=environment,
                                    timeout=PART_SECONDS, check=False).returncode
        except OSError as error:
            status = f"cannot be started: {error.strerror}"
        except subprocess.TimeoutExpired:
            status = f"out of time, {PART_SECONDS} s"
    return status, log.read_text(errors="replace")


def run_contract(kind, environment):
    """The contract tests, counted from gtest's XML, which is missing if the program crashed or hung."""
    report = RESULTS / f"contract_{kind}.xml"
    status, output = run_logged([BUILD / "tests/contract/contract_tests", "--hardware", f"--gtest_output=xml:{report}"],
                                RESULTS / f"contract_{kind}.log", environment)
    tally = Tally()
    if status not in (0, 1) or not report.exists():
        tally.fail(f"contract_tests: {status}; the end of its output:\n" + "\n".join(output.splitlines()[-40:]))
        return tally
    for case in xml.etree.ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname')}.{case.get('name')}"
        failures = [failure.text for failure in case.iter("failure")]
        skipped = case.find("skipped")
        if failures:
            tally.fail(f"{name}\n" + "\n".join(failures))
        elif skipped is not None:
            tally.skip((skipped.text or skipped.get("message", "")).strip().splitlines()[-1])
        else:
            tally.passed += 1
    return tally


def run_scenarios(path, kind, environment):
    """One file of unittest, counted from its verbose output."""
    status, output = run_logged([sys.executable, "-m", "unittest", "-v", path.stem],
                                RESULTS / f"{path.stem}_{kind}.log", environment)
    tally = Tally()
    ran = re.search(r"^Ran (\d+) test", output, re.M)
    for reason in re.findall(r"\.\.\. skipped '(.*)'$", output, re.M):
        tally.skip(reason)
    # A test counts as one failure, even if several of its parts (subTest) failed.
    failed = set(re.findall(r"^(?:FAIL|ERROR): (\w+ \([\w.]+\))", output, re.M))
    if status != 0:
        tally.fail(output if ran else f"{path.name}: {status}\n{output}")
        tally.failed = max(1, len(failed))
    tally.passed = (int(ran.group(1)) if ran else 0) - tally.skipped - len(failed)
    return tally


def twice_at_most(run):
    """Runs a part again if it failed. It tests other projects' drivers and protocols in an emulated machine,
    interrupted in the middle of their work. (rxe of 6.1 never processes the first requests of three in a thousand
    queue pairs, docs/testing.md.) A part that fails twice has failed. If it fails once, its output is reported, and
    the suite passes."""
    tally = run()
    if tally.failed == 0:
        return tally
    again = run()
    if again.failed == 0:
        again.unstable = tally.failures
    return again


def parts(kind, environment):
    yield "contract", lambda: run_contract(kind, environment)
    for path in sorted((HERE / "scenarios").glob("*_test.py")):
        yield path.stem.removesuffix("_test"), lambda path=path: run_scenarios(path, kind, environment)


def report(kind, name, tally, seconds):
    """Prints a report at once, because several kinds print at the same time."""
    lines = [f"==> {kind} {name}: {tally.passed} passed, {tally.failed} failed, {tally.skipped} skipped ({seconds:.0f} s)"]
    lines += [f"    skipped {count}: {reason}" for reason, count in tally.reasons.items()]
    lines += ["    UNSTABLE, passed when run again: " + text.replace("\n", "\n    ") for text in tally.unstable]
    lines += ["    FAILED: " + failure.replace("\n", "\n    ") for failure in tally.failures]
    print("\n".join(lines), flush=True)


def run_kind(kind, only):
    """Runs all parts of one kind, or one part. Returns the number of parts, and the number of failed tests."""
    failed = ran = 0
    for name, run in parts(kind, environment_for(kind)):
        if only in (None, name):
            began = time.monotonic()
            tally = twice_at_most(run)
            report(kind, name, tally, time.monotonic() - began)
            ran += 1
            failed += tally.failed
    return ran, failed


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", help="run the part of this name only: contract, or a file of scenarios/ without _test.py")
    parser.add_argument("kinds", nargs="+", choices=("rxe", "siw"))
    options = parser.parse_args()
    # In parallel: each kind has its own pair, cables and addresses, and most tests wait most of the time.
    with concurrent.futures.ThreadPoolExecutor() as threads:
        counts = list(threads.map(lambda kind: run_kind(kind, options.only), options.kinds))
    if not any(ran for ran, _ in counts):
        parser.error(f"there is no part {options.only}")
    failed = sum(failures for _, failures in counts)
    print(f"==> {'FAILED' if failed else 'all passed'}")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
